"""What a request must say, and what is answered to one that does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from hypothesis import given
from hypothesis import strategies as st

from blockserver.wire import protocol
from swarm.errors import RemoteError
from swarm.wire.spans import Span
from tests.blockserver.recorded import calls

HELD = Span(2, 6)


def test_uids_of_a_span_come_back_as_the_span() -> None:
    assert protocol.parse_span(protocol.uids("m-hf", Span(3, 5)), "m-hf", HELD) == Span(3, 5)


@pytest.mark.parametrize(
    ("uid", "reason"),
    [
        ("", "no block of m"),
        ("m", "no block of m"),
        ("m.", "no block of m"),
        ("other.2", "no block of m"),
        ("m.-1", "no block of m"),
        ("m.²", "no block of m"),
        ("m.9999999", "no block of m"),
        ("m.2 m.4", "must follow one another"),
        ("m.3 m.2", "must follow one another"),
        ("m.2 m.2", "must follow one another"),
        ("m.2  m.3", "no block of m"),
        ("m.1 m.2", "not served here"),
        ("m.5 m.6", "not served here"),
        ("m.2 " * 40_000, "more than any model has"),
    ],
)
def test_other_uids_are_refused(uid: str, reason: str) -> None:
    with pytest.raises(RemoteError, match=reason):
        protocol.parse_span(uid, "m", HELD)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "must say its max_length"),
        ({"max_length": -1}, "not within 0"),
        ({"max_length": 10**12}, "not within 0"),
        ({"max_length": 16.0}, "max_length must be int, not float"),
        ({"max_length": True}, "max_length must be int, not bool"),
        ({"max_length": 16, "alloc_timeout": "soon"}, "number of seconds"),
        ({"max_length": 16, "alloc_timeout": -1}, "number of seconds"),
        ({"max_length": 16, "alloc_timeout": float("nan")}, "number of seconds"),
        ({"max_length": 16, "session_id": 7}, "session_id must be str"),
        ({"max_length": 16, "session_id": "x" * 200}, "at most 128 characters"),
        ({"max_length": 16, "active_adapter": 3}, "active_adapter must be str"),
    ],
)
def test_an_opening_that_makes_no_sense_is_refused(metadata: dict[str, Any], reason: str) -> None:
    with pytest.raises(RemoteError, match=reason):
        protocol.parse_opening(metadata, HELD)


@pytest.mark.parametrize("position", [-1, 10**9, 1.0, True, "0"])
def test_a_position_is_a_small_whole_number(position: object) -> None:
    with pytest.raises(RemoteError, match="start_from_position"):
        protocol.parse_step({"start_from_position": position})


@pytest.mark.parametrize(
    "structure",
    [
        [],
        (b"__T0",),
        ((b"__T0",), {"name": b"__T0"}),
        ((b"__T5",), {}),
        ((b"__T-1",), {}),
        (("__T0",), {}),
        ((1,), {}),
        (((b"__T0",),), {}),
        ((b"__T00000000000000000000",), {}),
    ],
)
def test_a_structure_may_name_the_tensors_sent_only(structure: object) -> None:
    with pytest.raises(RemoteError):
        protocol.arrange({"args_structure": structure}, [torch.ones(1)])


def test_one_tensor_may_stand_in_two_places() -> None:
    """Petals' client sends one dummy for prompts and beam rows where it can."""
    one, two = torch.ones(1), torch.zeros(1)
    placed = protocol.arrange({"args_structure": ((b"__T1", b"__T0", b"__T1"), {})}, [one, two])
    assert [tensor is two for tensor in placed] == [True, False, True]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "are expected, not 0"),
        ([torch.zeros(1, 2, 8)] * 4, "are expected, not 4"),
        ([torch.zeros(1, 2, 7)], "hidden states are floats"),
        ([torch.zeros(2, 8)], "hidden states are floats"),
        ([torch.zeros(0, 2, 8)], "hidden states are floats"),
        ([torch.zeros(1, 2, 8, dtype=torch.int64)], "hidden states are floats"),
        ([torch.zeros(1, 8193, 8)], "8,192 tokens"),
        ([torch.zeros(1, 2, 8), torch.zeros(3, 1, 1, 8)], "prompts are floats"),
        ([torch.zeros(1, 2, 8), torch.zeros(4, 1, 3, 8)], "prompts are floats"),
        ([torch.zeros(1, 2, 8), torch.zeros(4, 2, 1, 8)], "prompts are floats"),
        ([torch.zeros(1, 2, 8), torch.empty(0), torch.tensor([1])], "name rows 0 to 0"),
        ([torch.zeros(1, 2, 8), torch.empty(0), torch.tensor([-1])], "name rows 0 to 0"),
        ([torch.zeros(1, 2, 8), torch.empty(0), torch.tensor([0.0])], "hypo_ids are int64"),
        ([torch.zeros(1, 2, 8), torch.empty(0), torch.tensor([0, 0])], "hypo_ids are int64"),
    ],
)
def test_arguments_of_the_wrong_shape_or_kind_are_refused(arguments: list[torch.Tensor], reason: str) -> None:
    with pytest.raises(RemoteError, match=reason):
        protocol.block_input(arguments, blocks=4, hidden_size=8, dtype=torch.float32)


def test_hidden_states_of_any_float_type_arrive_in_the_servers() -> None:
    given_half = protocol.block_input([torch.ones(1, 2, 8, dtype=torch.float16)], 4, 8, torch.float32)
    assert given_half.hidden.dtype is torch.float32
    assert given_half.prompts is None
    assert given_half.rows is None


@pytest.mark.parametrize("asked", [1, (1, 2), ("none",), (True,), {}])
def test_output_compression_is_one_number_for_each_output(asked: object) -> None:
    with pytest.raises(RemoteError, match="output_compression"):
        protocol.parse_compression({"output_compression": asked}, outputs=1)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_map_or_a_remote_error(data: bytes) -> None:
    try:
        metadata = protocol.parse_metadata(data)
    except RemoteError:
        return
    assert all(isinstance(key, str) for key in metadata)


def test_our_clients_metadata_are_those_of_petals_client() -> None:
    """Same keys, same order, same types; only the ids are our own."""
    recorded = next(call for call in calls("llama") if call.scene == "session-prefill-then-steps")
    first, second = (MSGPackSerializer.loads(request.metadata) for request in recorded.requests()[:2])
    ids = [first["session_id"], first["step_id"], second["session_id"], second["step_id"]]
    opening = protocol.opening_metadata(ids[0], ids[1], first["max_length"], None)
    step = protocol.step_metadata(ids[2], ids[3], second["start_from_position"])
    assert MSGPackSerializer.loads(opening) == first
    assert MSGPackSerializer.loads(step) == second


@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_every_recorded_request_is_parsed(family: str) -> None:
    for call in calls(family):
        for request in [] if call.rpc.endswith("rpc_info") else call.requests(runtime_pb2.ExpertRequest):
            metadata = protocol.parse_metadata(request.metadata)
            if not request.metadata:
                continue
            assert protocol.parse_span(request.uid, metadata_prefix(request.uid), call.span) == call.span
            protocol.parse_step(metadata)
            if "max_length" in metadata:
                assert protocol.parse_opening(metadata, call.span).max_length > 0


def metadata_prefix(uid: str) -> str:
    return uid.partition(".")[0]
