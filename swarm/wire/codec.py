"""msgpack as hivemind speaks it: bin types, text keys, and a tuple as Ext code 64 around an array.

Decoding never raises anything but BadRecord, whatever the bytes: hivemind's own decoder lets one bad value under a key hang
the look-up of that key for good.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack

from swarm.errors import BadRecord

TUPLE_EXT = 0x40
DICTIONARY_EXT = 0x50

MAX_VALUE_BYTES = 16_384
"""One server's record takes about 600 bytes with five pings and two adapters."""

MAX_NESTING = 8
"""A record is a tuple that holds a map that holds a map."""


def encode(value: object) -> bytes:
    """Bytes that hivemind's MSGPackSerializer decodes to an equal value, tuples included."""
    packed: bytes = msgpack.packb(value, use_bin_type=True, default=_pack_tuple, strict_types=True)
    return packed


def decode(data: bytes, *, foreign: bool = False) -> object:
    """The value, or BadRecord where the bytes are too many, no msgpack, too deep, or of an unknown extension.

    With `foreign`, extensions that we do not know become None: the answer to rpc_info holds hivemind's tensor descriptors.
    """
    if len(data) > MAX_VALUE_BYTES:
        raise BadRecord("too-large", f"{len(data):,} bytes where {MAX_VALUE_BYTES:,} are allowed")
    return _decode(data, 0, foreign)


def decode_dictionary(data: bytes) -> list[tuple[object, bytes, float]]:
    """What hivemind keeps under a key: (subkey, value as bytes, expiry). Items that are none of that are left out alone;
    BadRecord where the whole is no such dictionary."""
    try:
        outer = msgpack.unpackb(data, ext_hook=msgpack.ExtType)
        if not isinstance(outer, msgpack.ExtType) or outer.code != DICTIONARY_EXT:
            raise BadRecord("undecodable", "no dictionary of subkeys")
        unpacked = msgpack.unpackb(outer.data, ext_hook=msgpack.ExtType, raw=False, unicode_errors="surrogateescape")
        _, _, items = unpacked
        return [(item[0], item[1], float(item[2])) for item in items if _is_item(item)]
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadRecord("undecodable", f"no dictionary of subkeys ({type(error).__name__})") from error


def _is_item(item: object) -> bool:
    """A subkey, its value's bytes, and a finite expiry; a number is any but a bool."""
    if not isinstance(item, list) or len(item) != 3 or not isinstance(item[1], bytes):
        return False
    return isinstance(item[2], (int, float)) and not isinstance(item[2], bool) and math.isfinite(item[2])


def _pack_tuple(value: object) -> object:
    if isinstance(value, tuple):
        packed = msgpack.packb(list(value), use_bin_type=True, default=_pack_tuple, strict_types=True)
        return msgpack.ExtType(TUPLE_EXT, packed)
    raise TypeError(f"{type(value).__name__} has no place on the wire")


def _decode(data: bytes, depth: int, foreign: bool) -> object:
    if depth > MAX_NESTING:
        raise BadRecord("undecodable", f"tuples nested more than {MAX_NESTING} deep")

    def unpack_extension(code: int, inner: bytes) -> object:
        if code != TUPLE_EXT and foreign:
            return None
        if code != TUPLE_EXT:
            raise BadRecord("undecodable", f"unknown msgpack extension {code}")
        items = _decode(inner, depth + 1, foreign)
        if not isinstance(items, list):
            raise BadRecord("undecodable", "a tuple extension holds no array")
        return tuple(items)

    try:
        unpacked: object = msgpack.unpackb(data, ext_hook=unpack_extension, raw=False)
    except BadRecord:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadRecord("undecodable", f"no msgpack that hivemind writes ({type(error).__name__}: {error})"[:200]) from error
    return unpacked


def as_float(value: object) -> float | None:
    """The value where it is a float in earnest (an int is none, as in Petals), else None."""
    return value if isinstance(value, float) and math.isfinite(value) else None


def as_map(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadRecord("shape", "a map with text keys is expected")
    return value
