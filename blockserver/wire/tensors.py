"""Tensor <-> bytes, as hivemind writes them: a little-endian buffer, a shape, a dtype's name, a compression.

Uncompressed tensors, which is what Petals sends by default, take a path of their own that checks first and takes half of
hivemind's time for one token; the compressed forms go through hivemind. Whatever a peer sends becomes a tensor or a
RemoteError.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator

import torch
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.proto import runtime_pb2

from swarm.errors import RemoteError

NONE: int = runtime_pb2.CompressionType.NONE

_BLOCKWISE = runtime_pb2.CompressionType.BLOCKWISE_8BIT
_BLOCKWISE_LIBRARY = "bitsandbytes"
"""Importing it takes seconds, on the event loop: a stranger's request must not be what loads it. Servers that hold quantised
blocks have it loaded; others refuse the form."""

_CODEBOOKS = (runtime_pb2.CompressionType.QUANTILE_8BIT, runtime_pb2.CompressionType.UNIFORM_8BIT)

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "int64": torch.int64,
}
"""What Petals peers send: hidden states, prompts and gradients in a float type, beam indices in int64."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_TENSOR_BYTES = 256 * 2**20
"""One tensor, unpacked: 8,192 tokens of 8,192 hidden units in float32, the longest prefill of the widest open models."""

MAX_DIMENSIONS = 4
"""Deep prompts have four: block, batch, position, hidden unit."""

CHUNK_BYTES = 2**20
"""Streamed tensors travel in parts of this size, well below the 4 MiB that a message may have."""


def encode(tensor: torch.Tensor, compression: int = NONE) -> runtime_pb2.Tensor:
    """Any device, any strides. Integers are never compressed, as in hivemind."""
    tensor = tensor.detach().to("cpu").contiguous()
    if compression != NONE and tensor.is_floating_point() and tensor.numel():
        return _encode_compressed(tensor, compression)
    raw = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    return runtime_pb2.Tensor(buffer=raw.numpy().tobytes(), size=tensor.shape, dtype=_NAMES[tensor.dtype])


def decode(message: runtime_pb2.Tensor) -> torch.Tensor:
    """RemoteError where size, dtype and buffer do not agree or are beyond the limits."""
    shape = tuple(message.size)
    dtype = DTYPES.get(message.dtype)
    if dtype is None:
        raise RemoteError(f"a tensor of dtype {message.dtype[:32]!r} has no place on the wire")
    if len(shape) > MAX_DIMENSIONS:
        raise RemoteError(f"no tensor here has the shape {list(shape[:8])}")
    elements = math.prod(shape)
    if elements * dtype.itemsize > MAX_TENSOR_BYTES or len(message.buffer) > MAX_TENSOR_BYTES:
        raise RemoteError(f"a tensor of shape {list(shape)} is larger than {MAX_TENSOR_BYTES:,} bytes")
    if message.compression != NONE:
        return _decode_compressed(message, shape)
    if len(message.buffer) != elements * dtype.itemsize:
        if dtype is torch.bfloat16 and len(message.buffer) == 4 * elements:
            # The older form of bfloat16, as four bytes of a float32.
            return torch.frombuffer(bytearray(message.buffer), dtype=torch.float32).to(dtype).reshape(shape)
        raise RemoteError(f"a tensor of shape {list(shape)} in {message.dtype} with a buffer of {len(message.buffer):,} bytes")
    if not elements:
        return torch.empty(shape, dtype=dtype)
    # A copy: memory that torch may write to, which a protobuf's bytes are not.
    return torch.frombuffer(bytearray(message.buffer), dtype=dtype).reshape(shape)


def _refuse_what_is_not_loaded(compression: int) -> None:
    if compression == _BLOCKWISE and _BLOCKWISE_LIBRARY not in sys.modules:
        raise RemoteError("blockwise 8-bit compression is not spoken here; the other forms are")


def _encode_compressed(tensor: torch.Tensor, compression: int) -> runtime_pb2.Tensor:
    _refuse_what_is_not_loaded(compression)
    try:
        return serialize_torch_tensor(tensor, compression)
    # Door: a peer chose the form; hivemind's encoders raise what they like where a library or a dtype does not allow it.
    except Exception as error:
        raise RemoteError(f"an answer cannot be compressed as asked ({type(error).__name__}: {error})"[:200]) from error


def _decode_compressed(message: runtime_pb2.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    _refuse_what_is_not_loaded(message.compression)
    try:
        decode_form = _decode_codebook if message.compression in _CODEBOOKS else deserialize_torch_tensor
        tensor: torch.Tensor = decode_form(message)
    # Door: the decoders raise whatever numpy, torch or a missing library raises on a stranger's bytes.
    except Exception as error:
        raise RemoteError(f"a compressed tensor cannot be decoded ({type(error).__name__}: {error})"[:200]) from error
    if tuple(tensor.shape) != shape:
        raise RemoteError(f"a compressed tensor of shape {list(tensor.shape)} claims to have {list(shape)}")
    return tensor.detach()


def _decode_codebook(message: runtime_pb2.Tensor) -> torch.Tensor:
    """Eight bytes with the size of the codebook, the codebook in float32, one byte for each element.

    hivemind 1.1.12 writes this form but fails to read it under numpy 2.
    """
    buffer = bytearray(message.buffer)
    size = int.from_bytes(buffer[:8], "little")
    codebook = torch.frombuffer(buffer, dtype=torch.float32, offset=8, count=size).to(DTYPES[message.dtype])
    chosen = torch.frombuffer(buffer, dtype=torch.uint8, offset=8 + 4 * size)
    return codebook[chosen.long()].reshape(tuple(message.size))


def split(message: runtime_pb2.Tensor, chunk_bytes: int = CHUNK_BYTES) -> Iterator[runtime_pb2.Tensor]:
    """The tensor as parts for a stream: the first says what it is and how many follow, the rest are buffers only."""
    buffer = message.buffer
    first = runtime_pb2.Tensor()
    first.CopyFrom(message)
    first.buffer = buffer[:chunk_bytes]
    first.chunks = math.ceil(len(buffer) / chunk_bytes)
    yield first
    for start in range(chunk_bytes, len(buffer), chunk_bytes):
        yield runtime_pb2.Tensor(buffer=buffer[start : start + chunk_bytes])


def join(parts: Iterable[runtime_pb2.Tensor]) -> list[runtime_pb2.Tensor]:
    """Parts of several tensors, in order, as whole ones. A part with a dtype begins a tensor."""
    whole: list[runtime_pb2.Tensor] = []
    buffers: list[list[bytes]] = []
    for part in parts:
        if part.dtype:
            whole.append(part)
            buffers.append([])
        elif not whole:
            raise RemoteError("a streamed tensor begins without its dtype and size")
        buffers[-1].append(part.buffer)
    for tensor, chunks in zip(whole, buffers, strict=True):
        if len(chunks) > 1:
            tensor.buffer = b"".join(chunks)
    return whole
