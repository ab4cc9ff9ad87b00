"""Tensors and bytes: hivemind's format exactly, and nothing but a RemoteError for what is not that."""

from __future__ import annotations

import sys

import pytest
import torch
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.proto import runtime_pb2
from hypothesis import given
from hypothesis import strategies as st

from blockserver.wire import tensors
from swarm.errors import RemoteError
from tests.blockserver.recorded import Call, calls

ANSWERS = [call for family in ("llama", "mixtral") for call in calls(family) if not call.rpc.endswith("rpc_info")]


@pytest.mark.parametrize("call", ANSWERS, ids=str)
def test_every_recorded_answer_is_understood_as_hivemind_understands_it(call: Call) -> None:
    messages = tensors.join(part for answer in call.responses() for part in answer.tensors)
    assert messages
    for message in messages:
        assert torch.equal(tensors.decode(message), deserialize_torch_tensor(message))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [(1, 1, 8), (2, 3, 4), (0,), (1, 0, 8)])
def test_what_is_written_is_what_hivemind_reads(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 100).to(dtype)
    written = tensors.encode(tensor)
    assert torch.equal(deserialize_torch_tensor(written), tensor)
    assert torch.equal(tensors.decode(written), tensor)
    assert tensors.decode(written).dtype is dtype


def test_a_transposed_tensor_is_written_in_its_own_order() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).T
    assert torch.equal(tensors.decode(tensors.encode(tensor)), tensor)


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_compressed_tensors_are_read_and_written(compression: int) -> None:
    tensor = torch.randn(2, 40, 8, generator=torch.Generator().manual_seed(0))
    for message in (serialize_torch_tensor(tensor, compression), tensors.encode(tensor, compression)):
        assert message.compression == compression
        torch.testing.assert_close(tensors.decode(message), tensor, atol=0.2, rtol=0.1)


def test_a_strangers_request_loads_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blockwise form needs one whose import would hold the event loop for seconds."""
    monkeypatch.delitem(sys.modules, "bitsandbytes", raising=False)
    message = runtime_pb2.Tensor(buffer=bytes(64), size=[4], dtype="float32", compression=5)
    for asked in (lambda: tensors.decode(message), lambda: tensors.encode(torch.ones(4), 5)):
        with pytest.raises(RemoteError, match="not spoken here"):
            asked()
    assert "bitsandbytes" not in sys.modules


def test_both_forms_of_bfloat16_are_read() -> None:
    """hivemind once wrote four bytes for each value, and has peers that still do."""
    tensor = torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16)
    old = runtime_pb2.Tensor(buffer=tensor.float().numpy().tobytes(), size=[3], dtype="bfloat16")
    assert torch.equal(tensors.decode(old), tensor)


@given(st.binary(max_size=64), st.integers(min_value=1, max_value=10), st.booleans())
def test_parts_of_a_stream_join_to_the_same_tensors(raw: bytes, chunk: int, other_first: bool) -> None:
    whole = runtime_pb2.Tensor(buffer=raw, size=[len(raw)], dtype="float32")
    other = tensors.encode(torch.ones(1))
    order = [other, whole] if other_first else [whole, other]
    parts = [part for message in order for part in tensors.split(message, chunk)]
    assert [joined.buffer for joined in tensors.join(parts)] == [message.buffer for message in order]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"dtype": "complex64", "size": [1], "buffer": b"12345678"}, "no place on the wire"),
        ({"dtype": "float32", "size": [2], "buffer": b"1234"}, "with a buffer of 4 bytes"),
        ({"dtype": "float32", "size": [1] * 5, "buffer": b"1234"}, "has the shape"),
        ({"dtype": "float32", "size": [2**30, 2**30], "buffer": b""}, "is larger than"),
        ({"dtype": "float32", "size": [4], "buffer": b"1234", "compression": 3}, "cannot be decoded"),
        ({"dtype": "float32", "size": [4], "buffer": b"1234", "compression": 2}, "cannot be decoded"),
        ({"dtype": "float32", "size": [4], "buffer": b"1234", "compression": 99}, "cannot be decoded"),
    ],
)
def test_a_tensor_that_does_not_add_up_is_the_senders_fault(message: dict[str, object], reason: str) -> None:
    with pytest.raises(RemoteError, match=reason):
        tensors.decode(runtime_pb2.Tensor(**message))


@given(
    st.builds(
        runtime_pb2.Tensor,
        buffer=st.binary(max_size=64),
        size=st.lists(st.integers(min_value=0, max_value=5), max_size=5),
        dtype=st.sampled_from([*tensors.DTYPES, "", "object", "float31"]),
        compression=st.integers(min_value=0, max_value=7),
    )
)
def test_any_message_is_a_tensor_of_its_shape_or_a_remote_error(message: runtime_pb2.Tensor) -> None:
    try:
        tensor = tensors.decode(message)
    except RemoteError:
        return
    assert tuple(tensor.shape) == tuple(message.size)


def test_a_part_without_a_beginning_is_refused() -> None:
    with pytest.raises(RemoteError, match="begins without"):
        tensors.join([runtime_pb2.Tensor(buffer=b"1234")])
