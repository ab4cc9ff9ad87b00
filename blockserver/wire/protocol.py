"""The p2p RPC of Petals, both ends: names, and what the metadata of requests say. See `docs/protocol.md`.

Pure: maps and tensors in, frozen requests or a RemoteError with a clear text out. Does not know engines, sessions' state or
the network. What a peer sends is parsed strictly; unknown keys are ignored, as newer peers may add some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import torch

from swarm.errors import BadRecord, RemoteError
from swarm.wire import codec
from swarm.wire.keys import MAX_BLOCKS, block_uid
from swarm.wire.spans import Span

SERVICE = "TransformerConnectionHandler"
"""The class name under which Petals' servers register their handlers; ours resolves to the same."""

MAX_LENGTH = 8_192
"""Tokens of a session. Petals' own cap for models with grouped key-value heads; more would let one session take the cache."""

MAX_LENGTH_UNGROUPED = 2_048
"""The same for models whose every head has keys and values of its own: their cache takes several times as much."""

MAX_NEXT_SERVERS = 64
"""Servers that a step may be handed on to; a route through more has other problems."""

MIN_PUSH_ID_LENGTH = 16
"""A session with a shorter id takes no pushes: knowing the id is what entitles a peer to push, so it must not be guessable."""

MAX_TOKENS_PER_STEP = 8_192
"""Tokens times batch in one request: a longer prefill comes in several steps, so that nobody holds the compute thread long."""

MAX_TENSORS = 8
"""Hidden states, a gradient, prompts, beam rows, and room for what newer peers add."""

MAX_UIDS_LENGTH = 65_536
"""Characters of the uids of a request: 2,048 blocks with a prefix of 30."""

MAX_ID_LENGTH = 128
"""Characters of a session's or step's id; Petals sends a UUID of 36."""

MAX_ALLOC_TIMEOUT_S = 600.0
"""A client that waits longer for cache had better ask another server."""

SCHEMA_TOKENS = 2_048
"""The length that Petals' descriptors of hidden states claim; clients only read dtype, compression and the last dimension."""

T = TypeVar("T")


def rpc_name(method: str) -> str:
    return f"{SERVICE}.{method}"


# ------------------------------------------------------------------------------------------------------ what is asked


@dataclass(frozen=True, slots=True)
class BlockInput:
    """Arguments of one pass. `prompts` `[blocks, batch, prefix, hidden]`, `rows` `[batch]`; None where not given."""

    hidden: torch.Tensor
    prompts: torch.Tensor | None = None
    rows: torch.LongTensor | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What the first message of an inference stream says beside its step."""

    span: Span
    session_id: str
    max_length: int
    alloc_timeout_s: float
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class NextServer:
    """Where a step's output goes on: a session that the client has open there."""

    peer_id: str
    session_id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """`position` is where the new tokens begin, None for "after the last". The output is pushed to the first of `onward`.

    `push_from` is the only peer that may push into the session from now on. Our own client says it, Petals' does not.
    """

    step_id: str | None
    position: int | None
    onward: tuple[NextServer, ...] = ()
    push_from: str | None = None


def parse_span(uid: str, prefix: str, held: Span) -> Span:
    """The blocks that a request is for; RemoteError unless they follow one another and this server holds them."""
    if len(uid) > MAX_UIDS_LENGTH:
        raise RemoteError(f"{len(uid):,} characters of block uids are more than any model has")
    blocks = [_block(one, prefix) for one in uid.split(" ")]
    if any(later != block + 1 for block, later in pairwise(blocks)):
        raise RemoteError("the blocks of a request must follow one another")
    span = Span(blocks[0], blocks[-1] + 1)
    if not held.covers(span):
        raise RemoteError(f"blocks {span} of {prefix} are not served here; {held} are")
    return span


def _block(uid: str, prefix: str) -> int:
    head, dot, index = uid.rpartition(".")
    if not dot or head != prefix or not (index.isascii() and index.isdecimal()) or len(index) > 6:
        raise RemoteError(f"{uid[:80]!r} is no block of {prefix}, the model served here")
    return int(index)


def parse_metadata(data: bytes) -> dict[str, Any]:
    """An empty one is an empty map."""
    try:
        return codec.as_map(codec.decode(data)) if data else {}
    except BadRecord as error:
        raise RemoteError(f"the request's metadata cannot be read: {error.detail}") from error


def parse_opening(metadata: Mapping[str, Any], span: Span, longest: int = MAX_LENGTH) -> Opening:
    max_length = _field(metadata, "max_length", int, None)
    if max_length is None:
        raise RemoteError("a session's first message must say its max_length")
    if not 0 <= max_length <= longest:
        raise RemoteError(f"max_length {max_length} is not within 0 to {longest:,}, the most that this server allows")
    timeout = metadata.get("alloc_timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0):
        raise RemoteError("alloc_timeout is a number of seconds")
    return Opening(
        span=span,
        session_id=_identifier(metadata, "session_id") or "",
        max_length=max_length,
        alloc_timeout_s=min(float(timeout or 0.0), MAX_ALLOC_TIMEOUT_S),
        adapter=parse_adapter(metadata),
    )


def parse_step(metadata: Mapping[str, Any]) -> Step:
    position = _field(metadata, "start_from_position", int, None)
    if position is not None and not 0 <= position <= MAX_LENGTH:
        raise RemoteError(f"start_from_position {position} is not within 0 to {MAX_LENGTH:,}")
    return Step(
        step_id=_identifier(metadata, "step_id"),
        position=position,
        onward=_next_servers(metadata.get("next_servers")),
        push_from=_identifier(metadata, "push_from"),
    )


def _next_servers(given: object) -> tuple[NextServer, ...]:
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or len(given) > MAX_NEXT_SERVERS:
        raise RemoteError(f"next_servers is a list of at most {MAX_NEXT_SERVERS} servers")
    return tuple(_next_server(one) for one in given)


def _next_server(given: object) -> NextServer:
    if not isinstance(given, list | tuple) or len(given) != 4:
        raise RemoteError("each of next_servers is a peer id, a session id, and a span's start and end")
    peer_id, session_id, start, end = given
    texts = all(isinstance(text, str) and 0 < len(text) <= MAX_ID_LENGTH for text in (peer_id, session_id))
    if not texts or type(start) is not int or type(end) is not int or not 0 <= start < end <= MAX_BLOCKS:
        raise RemoteError("each of next_servers is a peer id, a session id, and a span's start and end")
    return NextServer(peer_id, session_id, Span(start, end))


def parse_pushed_to(metadata: Mapping[str, Any]) -> str | None:
    """The session that a pushed step is for."""
    return _identifier(metadata, "session_id")


def parse_adapter(metadata: Mapping[str, Any]) -> str | None:
    """The name of the adapter that is asked for; whether there is such a one is the engine's to say."""
    name = _identifier(metadata, "active_adapter")
    return name or None


def parse_compression(metadata: Mapping[str, Any], outputs: int) -> tuple[int, ...]:
    """The compression that the client asks for, one for each output; none by default."""
    asked = metadata.get("output_compression")
    if asked is None:
        return (0,) * outputs
    if not isinstance(asked, tuple | list) or len(asked) != outputs or any(type(code) is not int for code in asked):
        raise RemoteError(f"output_compression holds one number for each of the {outputs} outputs")
    return tuple(asked)


def _field(metadata: Mapping[str, Any], key: str, kind: type[T], default: T | None) -> T | None:
    value = metadata.get(key, default)
    # A bool is an int to Python, not to the wire.
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise RemoteError(f"{key} must be {kind.__name__}, not {type(value).__name__}")


def _identifier(metadata: Mapping[str, Any], key: str) -> str | None:
    value = _field(metadata, key, str, None)
    if value is not None and len(value) > MAX_ID_LENGTH:
        raise RemoteError(f"a {key} has at most {MAX_ID_LENGTH} characters")
    return value


# ----------------------------------------------------------------------------------------------------- the arguments


def arrange(metadata: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The positional arguments: `args_structure` names a tensor by its index (`b"__T0"`), the same one perhaps twice."""
    structure = metadata.get("args_structure")
    if structure is None:
        return list(tensors)
    if not isinstance(structure, tuple) or len(structure) != 2 or not isinstance(structure[0], tuple | list):
        raise RemoteError("args_structure is a tuple of positional and named arguments")
    if structure[1]:
        raise RemoteError("named arguments have no meaning here")
    return [_placed(place, tensors) for place in structure[0]]


def _placed(place: object, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if not isinstance(place, bytes) or not place.startswith(b"__T") or not place[3:].isdigit() or len(place) > 6:
        raise RemoteError("args_structure may name tensors only")
    index = int(place[3:])
    if index >= len(tensors):
        raise RemoteError(f"args_structure names tensor {index}; {len(tensors)} were sent")
    return tensors[index]


def structure(count: int) -> tuple[tuple[bytes, ...], dict[str, Any]]:
    """`args_structure` for that many positional tensors."""
    return tuple(b"__T%d" % index for index in range(count)), {}


def block_input(arguments: Sequence[torch.Tensor], blocks: int, hidden_size: int, dtype: torch.dtype) -> BlockInput:
    """Hidden states, then perhaps prompts, then perhaps beam rows: checked, and in the server's dtype."""
    if not 1 <= len(arguments) <= 3:
        raise RemoteError(f"hidden states, prompts and hypo_ids are expected, not {len(arguments)} tensors")
    hidden = _hidden(arguments[0], hidden_size)
    prompts = _prompts(arguments[1], hidden, blocks) if len(arguments) > 1 else None
    rows = _rows(arguments[2], hidden.shape[0]) if len(arguments) > 2 else None
    return BlockInput(hidden.to(dtype), None if prompts is None else prompts.to(dtype), rows)


def gradient(tensor: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    if tensor.shape != hidden.shape or not tensor.is_floating_point():
        raise RemoteError(f"the gradient has the shape {list(tensor.shape)}, the hidden states {list(hidden.shape)}")
    return tensor.to(hidden.dtype)


def _hidden(tensor: torch.Tensor, hidden_size: int) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.ndim != 3 or tensor.shape[2] != hidden_size or not tensor.shape[0]:
        raise RemoteError(f"hidden states are floats [batch, tokens, {hidden_size}], not {_kind(tensor)} {list(tensor.shape)}")
    if tensor.shape[0] * tensor.shape[1] > MAX_TOKENS_PER_STEP:
        raise RemoteError(f"one request may hold {MAX_TOKENS_PER_STEP:,} tokens in all its rows; send several")
    return tensor


def _prompts(tensor: torch.Tensor, hidden: torch.Tensor, blocks: int) -> torch.Tensor | None:
    if not tensor.numel():
        return None
    batch, tokens, size = hidden.shape
    fits = tensor.ndim == 4 and (tensor.shape[0], tensor.shape[3]) == (blocks, size) and tensor.shape[1] in (1, batch)
    if not fits or not tensor.is_floating_point() or tensor.shape[2] > tokens:
        raise RemoteError(
            f"prompts are floats [{blocks}, {batch}, up to {tokens}, {size}], not {_kind(tensor)} {list(tensor.shape)}"
        )
    return tensor


def _rows(tensor: torch.Tensor, batch: int) -> torch.LongTensor | None:
    if not tensor.numel():
        return None
    if tensor.dtype is not torch.int64 or tensor.shape != (batch,):
        raise RemoteError(f"hypo_ids are int64 [{batch}], not {_kind(tensor)} {list(tensor.shape)}")
    if int(tensor.min()) < 0 or int(tensor.max()) >= batch:
        raise RemoteError(f"hypo_ids name rows 0 to {batch - 1}")
    return torch.LongTensor(tensor)


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# ----------------------------------------------------------------------------------------------------- our own client


def uids(prefix: str, span: Span) -> str:
    return " ".join(block_uid(prefix, block) for block in span)


def pass_metadata(tensors: int) -> bytes:
    """Of a forward or backward pass without a session."""
    return codec.encode({"points": 0.0, "active_adapter": None, "args_structure": structure(tensors)})


def opening_metadata(
    session_id: str, step_id: str, max_length: int, alloc_timeout_s: float | None, push_from: str | None = None
) -> bytes:
    """Of the first message; the keys and types of Petals' client, and who may push."""
    metadata: dict[str, Any] = {
        "session_id": session_id,
        "step_id": step_id,
        "max_length": max_length,
        "points": 0.0,
        "active_adapter": None,
        "args_structure": structure(3),
        "start_from_position": 0,
    }
    if alloc_timeout_s is not None:
        metadata["alloc_timeout"] = alloc_timeout_s
    if push_from is not None:
        metadata["push_from"] = push_from
    return codec.encode(metadata)


def step_metadata(
    session_id: str, step_id: str, position: int | None, onward: Sequence[NextServer] = (), push_from: str | None = None
) -> bytes:
    """`position` None says that the step follows the last one, here and at the servers it is handed on to."""
    metadata: dict[str, Any] = {"session_id": session_id, "step_id": step_id}
    if onward:
        metadata["next_servers"] = _as_list(onward)
    if position is not None:
        metadata["start_from_position"] = position
    if push_from is not None:
        metadata["push_from"] = push_from
    return codec.encode({**metadata, "args_structure": structure(3)})


def pushed_metadata(metadata: Mapping[str, Any], onward: Sequence[NextServer]) -> bytes:
    """What goes with a step's output to the first of `onward`: what came with its input, for that session.

    A rollback goes with it, as in Petals: drafts that were refused are to be forgotten by all servers of the chain.
    """
    kept = {key: value for key, value in metadata.items() if key != "push_from"}
    new = {"session_id": onward[0].session_id, "next_servers": _as_list(onward[1:]), "pushed": True}
    return codec.encode({**kept, **new})


def _as_list(servers: Sequence[NextServer]) -> list[tuple[str, str, int, int]]:
    return [(one.peer_id, one.session_id, one.span.start, one.span.end) for one in servers]
