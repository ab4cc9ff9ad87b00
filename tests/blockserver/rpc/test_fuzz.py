"""Ten thousand requests that are nearly right: no crash, nothing left behind, and the next good request is answered."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hivemind.p2p import P2P, P2PDaemonError, P2PHandlerError
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from transformers import PreTrainedModel

from blockserver.compute.engine import Engine
from blockserver.model.blocks import load_span
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.wire import protocol, tensors
from swarm.errors import RemoteError
from swarm.wire.spans import Span
from tests.blockserver.loopback import loopback_peer, serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]
HELD = Span(0, 2)
TOKENS = 4_096
REQUESTS = 10_000
OVER_LIBP2P = 300
AT_ONCE = 25
SESSION_ID = "session-of-the-fuzz-test"
UNARY = ("rpc_info", "rpc_forward", "rpc_backward", "rpc_push")
STREAMS = ("rpc_forward_stream", "rpc_backward_stream", "rpc_inference", "rpc_inference", "rpc_inference")

Messages = list[Any]


def request(*sent: torch.Tensor, **metadata: Any) -> runtime_pb2.ExpertRequest:
    return runtime_pb2.ExpertRequest(
        uid="tiny.0 tiny.1",
        tensors=[tensors.encode(tensor) for tensor in sent],
        metadata=MSGPackSerializer.dumps({"args_structure": protocol.structure(len(sent)), **metadata}),
    )


def good(method: str) -> Messages:
    hidden, none, rows = torch.ones(1, 2, 32), torch.empty(0), torch.empty(0, dtype=torch.int64)
    match method:
        case "rpc_info":
            return [runtime_pb2.ExpertUID(uid="tiny.1")]
        case "rpc_forward" | "rpc_forward_stream":
            return [request(hidden, torch.zeros(2, 1, 1, 32))]
        case "rpc_backward" | "rpc_backward_stream":
            return [request(hidden, hidden, none)]
        case "rpc_push":
            return [request(hidden, none, rows, session_id=SESSION_ID, step_id="p", pushed=True)]
    opening = request(
        hidden, none, rows, session_id=SESSION_ID, step_id="a", max_length=8, points=0.0, active_adapter=None,
        start_from_position=0, alloc_timeout=0.0,
    )  # fmt: skip
    step = request(torch.ones(1, 1, 32), none, torch.tensor([0]), step_id="b", start_from_position=2)
    last = request(
        torch.ones(1, 1, 32), none, rows, step_id="c",
        next_servers=[("Qm" + "a" * 44, SESSION_ID, 2, 4)], push_from="Qm" + "b" * 44,
    )  # fmt: skip
    return [opening, step, last]


class Mutations:
    """Seeded: the same ones at each run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def messages(self, method: str) -> Messages:
        """The good messages with one to three faults, some missing, doubled or out of order."""
        messages = good(method)
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(messages))
            if len(messages) > 1 and self.random.random() < 0.15:
                self.random.choice([messages.reverse, messages.pop, lambda: messages.append(messages[0])])()  # type: ignore[operator]
            else:
                messages[place] = self.message(messages[place])
        return messages

    def message(self, message: Any) -> Any:
        if self.random.random() < 0.25 or isinstance(message, runtime_pb2.ExpertUID):
            return self.raw(message)
        changed = runtime_pb2.ExpertRequest.FromString(message.SerializeToString())
        self.random.choice([self.uid, self.metadata, self.metadata, self.tensor, self.tensor, self.tensor_count])(changed)
        return changed

    def raw(self, message: Any) -> Any:
        """As bytes; where they are no protobuf any more, hivemind has refused them already, and another try is made."""
        for _ in range(50):
            try:
                return type(message).FromString(self.bytes(message.SerializeToString()))
            except DecodeError:
                continue
        return message

    def bytes(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(changed) + 1)
            match self.random.randrange(4):
                case 0:
                    changed[at:at] = self.random.randbytes(self.random.randint(1, 8))
                case 1:
                    del changed[at : at + self.random.randint(1, 8)]
                case 2:
                    del changed[at:]
                case _:
                    if at < len(changed):
                        changed[at] ^= 1 << self.random.randrange(8)
        return bytes(changed)

    def uid(self, message: Any) -> None:
        message.uid = self.random.choice(
            ["", " ", "tiny", "tiny.", "tiny.0 tiny.0", "tiny.1 tiny.0", "tiny.0  tiny.1", "tiny.99", "tiny.-1", "a.0",
             "tiny.1" * 20_000, "tiny.²", "tiny.0\n", " ".join(f"tiny.{n}" for n in range(3_000))]
        )  # fmt: skip

    def metadata(self, message: Any) -> None:
        if self.random.random() < 0.3:
            message.metadata = self.bytes(message.metadata)
            return
        try:
            metadata = protocol.parse_metadata(message.metadata)
        except RemoteError:  # an earlier fault
            metadata = {}
        keys = [*metadata, "output_compression", "max_length", "alloc_timeout", "session_id", "next_servers", "nonsense"]
        key = self.random.choice(keys)
        if key in metadata and self.random.random() < 0.3:
            del metadata[key]
        else:
            metadata[key] = self.value()
        message.metadata = MSGPackSerializer.dumps(metadata)

    def value(self) -> Any:
        return self.random.choice(
            [None, True, 0, -1, 1, 7, 2**31, 2**63 - 1, -(2**63), 0.5, -1.0, float("nan"), float("inf"), "", "x", "x" * 5_000,
             b"", b"\xff" * 9, (), [], {}, (1, 2), [[]], [None] * 9, (b"__T0", b"__T1"), ((b"__T0",), {}), ((b"__T9",), {}),
             ((b"__T0", b"__T0", b"__T0"), {}), [("Qm", SESSION_ID, 0, 2)], [("x", "y", 3, 1)], [(b"", None, 0, "2")],
             [0] * 70, {"a": {"b": {"c": [1] * 50}}}, SESSION_ID, "a", "b", (0,), (3,), (1, 1), [4], [99]]
        )  # fmt: skip

    def tensor(self, message: Any) -> None:
        if not message.tensors:
            return
        tensor = self.random.choice(message.tensors)
        match self.random.randrange(6):
            case 0:
                tensor.dtype = self.random.choice(["", "float16", "bfloat16", "int64", "float64", "object", "qint8", "x" * 999])
            case 1:
                tensor.size[:] = [
                    self.random.choice([0, 1, 2, 3, 31, 32, 33, 8_193, 2**31]) for _ in range(self.random.randrange(6))
                ]
            case 2:
                tensor.buffer = self.bytes(tensor.buffer)
            case 3:
                tensor.compression = self.random.randrange(7)
            case 4:
                tensor.chunks = self.random.choice([-1, 0, 2, 2**31 - 1])
            case _:
                filled = self.random.choice([torch.nan, torch.inf, 3e38, 0.0])
                shape = self.random.choice(
                    [(1, 1, 32), (2, 1, 32), (1, 9, 32), (1, 0, 32), (0, 1, 32), (1, 1, 31), (2, 1, 1, 32)]
                )
                tensor.CopyFrom(tensors.encode(torch.full(shape, filled)))

    def tensor_count(self, message: Any) -> None:
        match self.random.randrange(3):
            case 0:
                del message.tensors[self.random.randrange(len(message.tensors) + 1) :]
            case 1:
                message.tensors.extend(list(message.tensors) * self.random.randint(1, 4))
            case _:
                message.tensors.sort(key=lambda tensor: len(tensor.buffer))


async def ask(handler: TransformerConnectionHandler, method: str, messages: Messages, sender: str = "fuzz") -> list[Any]:
    context: Any = SimpleNamespace(remote_id=SimpleNamespace(to_base58=lambda: sender))
    if method in UNARY:
        return [await getattr(handler, method)(messages[0], context)]

    async def stream() -> AsyncIterator[Any]:
        for message in messages:
            yield message

    return [answer async for answer in getattr(handler, method)(stream(), context)]


async def assert_nothing_left(handler: TransformerConnectionHandler, engine: Engine) -> None:
    await engine.run(lambda _: None)  # after the chores of all that has ended
    load = engine.load()
    assert (handler.sessions_active, load.sessions, set(load.waiting.values())) == (0, 0, {0})
    assert engine.cache_tokens_left == 2 * len(HELD) * TOKENS
    assert engine.memory_bytes == 0
    assert not handler.pushes._inboxes


async def assert_still_right(handler: TransformerConnectionHandler, right: Sequence[torch.Tensor]) -> None:
    answers = await ask(handler, "rpc_inference", good("rpc_inference"))
    for answer, expected in zip(answers, right, strict=True):
        torch.testing.assert_close(tensors.decode(answer.tensors[0]), expected)


async def test_mutated_requests_are_refused_or_answered_and_leave_nothing_behind(
    tiny: tuple[Path, PreTrainedModel],
) -> None:
    p2p = await loopback_peer(dht_mode="client")
    engine = Engine(load_span(tiny[0], HELD, torch.float32), TOKENS)
    handler = TransformerConnectionHandler(p2p, "tiny", engine, version="1", dht_client_mode=False)
    right = [tensors.decode(answer.tensors[0]) for answer in await ask(handler, "rpc_inference", good("rpc_inference"))]
    mutations = Mutations(seed=0)
    outcomes: Counter[str] = Counter()

    async def one(number: int) -> None:
        method = mutations.random.choice(UNARY + STREAMS)
        messages = mutations.messages(method)
        try:
            async with asyncio.timeout(60):
                await ask(handler, method, messages)
            outcomes["answered"] += 1
        except RemoteError:
            outcomes["refused"] += 1
        except KeyError:
            # Petals' text for a block that is not held; anywhere else it is a fault of ours.
            if method != "rpc_info":
                raise
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"request {number}, {method}: {messages}"[:2_000])
            raise

    for first in range(0, REQUESTS, AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(first, first + AT_ONCE)))
        if first % 2_500 == 0:
            await assert_nothing_left(handler, engine)
            await assert_still_right(handler, right)
    await assert_nothing_left(handler, engine)
    await assert_still_right(handler, right)
    assert outcomes["refused"] > REQUESTS // 4, outcomes
    assert outcomes["answered"] > REQUESTS // 20, outcomes
    engine.stop()
    await p2p.shutdown()


async def test_mutated_requests_over_libp2p_leave_the_server_as_it_was(tiny: tuple[Path, PreTrainedModel], client: P2P) -> None:
    """Raw bytes too, which hivemind itself must take apart."""
    mutations = Mutations(seed=1)
    async with serving(tiny[0], HELD, "tiny", client, cache_tokens=TOKENS) as server:
        right = [
            tensors.decode(answer.tensors[0]) for answer in await ask(server.handler, "rpc_inference", good("rpc_inference"))
        ]
        for _ in range(OVER_LIBP2P):
            method = mutations.random.choice(UNARY + STREAMS)
            name = protocol.rpc_name(method)
            messages = mutations.messages(method)
            try:
                async with asyncio.timeout(60):
                    if method in UNARY and mutations.random.random() < 0.3:
                        await client._client.call_unary_handler(
                            server.peer, name, mutations.bytes(messages[0].SerializeToString())
                        )
                    elif method in UNARY:
                        kind = runtime_pb2.ExpertInfo if method == "rpc_info" else runtime_pb2.ExpertResponse
                        await client.call_protobuf_handler(server.peer, name, messages[0], kind)
                    elif mutations.random.random() < 0.3:
                        await _raw_stream(client, server.peer, name, mutations.random.randbytes(200))
                    else:
                        await _stream(client, server.peer, name, messages)
            except (P2PHandlerError, P2PDaemonError, OSError, EOFError):
                continue
        async with asyncio.timeout(60):
            await server.handler._idle.wait()
        await assert_nothing_left(server.handler, server.engine)
        await assert_still_right(server.handler, right)


async def _stream(client: P2P, peer: Any, name: str, messages: Messages) -> None:
    async def requests() -> AsyncIterator[Any]:
        for message in messages:
            yield message

    async for _ in await client.iterate_protobuf_handler(peer, name, requests(), runtime_pb2.ExpertResponse):
        pass


async def _raw_stream(client: P2P, peer: Any, name: str, data: bytes) -> None:
    _, reader, writer = await client.call_binary_stream_handler(peer, name)
    # A length that fits, so that the server has something to take apart, and then the end.
    writer.write(P2P.MESSAGE_MARKER + len(data).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER) + data)
    await P2P.send_protobuf(P2P.END_OF_STREAM, writer)
    await reader.read()
    writer.close()
