"""How wide a block's hidden states are, as the answer to `rpc_info` for a block says it: hivemind's tensor descriptors inside.

Knows the bytes, not hivemind. A probe forward needs the width, and the answer is any peer's to make up.
"""

from __future__ import annotations

import msgpack

from swarm.wire.codec import MAX_NESTING, MAX_VALUE_BYTES

MAX_HIDDEN = 65_536
"""Four times the widest open model."""


def hidden_size(info: bytes) -> int | None:
    """The last dimension of the first tensor of `forward_schema`; None where the answer does not say."""
    if len(info) > MAX_VALUE_BYTES:
        return None
    try:
        schema = _unpacked(info, 0)
        sizes = _leaves(schema.get("forward_schema") if isinstance(schema, dict) else None, 0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    last = sizes[0][-1] if sizes and sizes[0] else None
    return last if isinstance(last, int) and not isinstance(last, bool) and 1 <= last <= MAX_HIDDEN else None


def _unpacked(data: bytes, depth: int) -> object:
    """Tuples become lists, and whatever else hivemind packs as a map becomes that map."""

    def inner(code: int, packed: bytes) -> object:
        return None if depth >= MAX_NESTING else _unpacked(packed, depth + 1)

    return msgpack.unpackb(data, ext_hook=inner, raw=False, strict_map_key=False)


def _leaves(value: object, depth: int) -> list[list[object]]:
    """The sizes of the descriptors, in order."""
    if isinstance(value, dict) and isinstance(value.get("size"), list):
        return [value["size"]]
    if isinstance(value, list) and depth < MAX_NESTING:
        return [leaf for item in value for leaf in _leaves(item, depth + 1)]
    return []
