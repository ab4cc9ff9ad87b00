"""A serializer that a stranger's bytes cannot hang.

hivemind decodes all subkeys of a key inside the callback that finishes the look-up: one undecodable value and the look-up
never returns, for anyone. A node whose protocol uses this serializer gets a marker in the bad value's place instead.
"""

from __future__ import annotations

from hivemind.dht.storage import DictionaryDHTValue
from hivemind.utils import MSGPackSerializer

from swarm.errors import BadRecord
from swarm.wire.codec import decode

_DICTIONARY_EXT = 0x50
_EXT_HEADERS = {0xC7: 2, 0xC8: 3, 0xC9: 5, 0xD4: 1, 0xD5: 1, 0xD6: 1, 0xD7: 1, 0xD8: 1}
"""msgpack's first byte of an extension value -> where its type code stands."""


class Undecodable:
    """Stands where a value could not be decoded. Unhashable on purpose: as a subkey it makes hivemind refuse the record."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, error: BadRecord) -> None:
        self.error = error


class TolerantSerializer(MSGPackSerializer):
    """Encodes as hivemind does; decodes values within our limits, and never raises."""

    @classmethod
    def loads(cls, buf: bytes) -> object:
        try:
            return _load_dictionary(buf) if _is_dictionary(buf) else decode(buf)
        except BadRecord as error:
            return Undecodable(error)


def _is_dictionary(buf: bytes) -> bool:
    position = _EXT_HEADERS.get(buf[0]) if buf else None
    return position is not None and len(buf) > position and buf[position] == _DICTIONARY_EXT


def _load_dictionary(buf: bytes) -> DictionaryDHTValue:
    """A key's subkeys with their values still packed: hivemind asks for those one by one."""
    try:
        value = MSGPackSerializer.loads(buf)
        assert isinstance(value, DictionaryDHTValue)
    except Exception as error:
        # A door: these bytes come from a stranger, and msgpack, hivemind's hooks and dict keys fail in many ways.
        raise BadRecord("undecodable", f"no dictionary of subkeys ({type(error).__name__})") from error
    return value
