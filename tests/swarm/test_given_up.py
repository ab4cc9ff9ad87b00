"""hivemind's own reader, fed with the answer to a call that has been given up in the same moment."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from hivemind.p2p.p2p_daemon_bindings.utils import write_pbmsg
from hivemind.proto import p2pd_pb2

from swarm.dht.bare import start_bare, stop_bare
from swarm.dht.given_up import PendingCalls
from swarm.dht.node import NodeConfig, start_node


def answer_to(call_id: UUID) -> p2pd_pb2.PersistentConnectionResponse:
    answered = p2pd_pb2.CallUnaryResponse(response=b"late")
    return p2pd_pb2.PersistentConnectionResponse(callId=call_id.bytes, callUnaryResponse=answered)


def refusal_of(call_id: UUID) -> p2pd_pb2.PersistentConnectionResponse:
    return p2pd_pb2.PersistentConnectionResponse(callId=call_id.bytes, daemonError=p2pd_pb2.DaemonError(message="late"))


class Pipe:
    """What is written to it can be read from it."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()

    def write(self, data: bytes) -> None:
        self.reader.feed_data(data)

    async def drain(self) -> None:
        pass


async def test_a_late_answer_does_not_end_the_reader_of_all_others() -> None:
    node = await start_node(NodeConfig(initial_peers=(), listen=("/ip4/127.0.0.1/tcp/0",)))
    bare = await start_bare(relay=False)
    try:
        for p2p in (node.p2p, bare):
            control = p2p._client.control
            given_up, waiting = uuid4(), uuid4()
            control._pending_calls[given_up] = asyncio.get_running_loop().create_future()
            control._pending_calls[waiting] = asyncio.get_running_loop().create_future()
            control._pending_calls[given_up].cancel()
            pipe = Pipe()
            for response in (answer_to(given_up), refusal_of(given_up), answer_to(waiting)):
                await write_pbmsg(pipe, response)
            pipe.reader.feed_eof()
            await control._read_from_persistent_conn(pipe.reader)
            assert control._pending_calls.pop(waiting).result() == b"late"
            del control._pending_calls[given_up]
    finally:
        await stop_bare(bare)
        await node.stop()


async def test_a_call_is_there_for_as_long_as_it_waits() -> None:
    calls, call_id = PendingCalls(), uuid4()
    assert call_id not in calls
    calls[call_id] = asyncio.get_running_loop().create_future()
    assert call_id in calls
    calls[call_id].cancel()
    assert call_id not in calls
    assert calls.pop(call_id).cancelled()
