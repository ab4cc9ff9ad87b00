"""More than three hundred distinct malformed values, and as many more by mutation as one likes. The same every time."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import msgpack

from swarm.wire.codec import TUPLE_EXT, encode

DETAILS: dict[str, Any] = {
    "start_block": 0,
    "end_block": 4,
    "public_name": "KwaaiNet-Test",
    "version": "kwaai-0.1.0",
    "network_rps": 10.0,
    "forward_rps": 5.0,
    "inference_rps": 5.0,
    "torch_dtype": "float16",
}
GOOD = (2, 10.0, DETAILS)


def malformed() -> dict[str, bytes]:
    """By what is wrong with them. None of them is a record of a server."""
    values = {**_bytes(), **_shapes(), **_states(), **_throughputs(), **_spans(), **_maps()}
    assert len(set(values.values())) == len(values), "each is distinct"
    return values


def _bytes() -> dict[str, bytes]:
    whole = encode(GOOD)
    values = {f"cut to {size} bytes": whole[:size] for size in range(0, len(whole), 3)}
    values |= {
        f"extension {code}": msgpack.packb(msgpack.ExtType(code, whole[3:])) for code in (0, 1, 2, 9, 63, 65, 80, 81, 127)
    }
    values |= {f"nested {depth} deep": b"\x91" * depth + b"\x01" for depth in (600, 1_100, 2_000, 9_000)}
    values |= {f"never used {byte:#x}": bytes([0xC1, byte]) for byte in range(0, 250, 10)}
    values |= {f"{size} bytes": b"\xc6" + size.to_bytes(4, "big") + b"x" * size for size in (16_400, 100_000)}
    values["tail"] = whole + b"\x00"
    values["bad UTF-8"] = msgpack.packb(b"\xff\xfe").replace(b"\xc4", b"\xd9")
    return values


def _shapes() -> dict[str, bytes]:
    shapes: list[object] = [
        None,
        True,
        5,
        1.5,
        "record",
        b"record",
        [],
        {},
        [2],
        (2,),
        ((2, 10.0, DETAILS),),
        [[2, 10.0]],
        "",
        b"",
    ]
    shapes += [
        {"state": 2, "throughput": 10.0},
        {**DETAILS},
        (2, 10.0, [DETAILS]),
        (2, 10.0, "map"),
        (2, 10.0, 7),
        (2, 10.0, (1,)),
    ]
    return {f"shape {n}": encode(value) for n, value in enumerate(shapes)}


def _states() -> dict[str, bytes]:
    states: list[object] = [
        -1,
        3,
        4,
        99,
        2**31,
        2**63,
        -(2**31),
        2.0,
        1.0,
        "2",
        "ONLINE",
        b"\x02",
        None,
        True,
        False,
        [2],
        (2,),
        {},
    ]
    return {f"state {state!r}": encode((state, 10.0, DETAILS)) for state in states}


def _throughputs() -> dict[str, bytes]:
    wrong: list[object] = [0, 1, 10, -1, 2**40, math.nan, math.inf, -math.inf, -0.1, -1e300, 1e10, 1e300, 1.7e308]
    wrong += ["10", b"10", None, True, [10.0], {}, "", "nan"]
    return {f"throughput {value!r}": encode((2, value, DETAILS)) for value in wrong}


def _spans() -> dict[str, bytes]:
    bounds: list[object] = [-1, 0, 4, 5, 20, 2_049, 1_000_000, 2**63, 0.0, 4.0, "0", None, True, [0], b"4"]
    values = {}
    for start, end in itertools.product(bounds, bounds):
        fine = type(start) is int and type(end) is int and 0 <= start < end <= 2_048
        if not fine and not (start is None and end is None):
            values[f"span {start!r}:{end!r}"] = encode((2, 10.0, {**DETAILS, "start_block": start, "end_block": end}))
    return values


def _maps() -> dict[str, bytes]:
    keys: list[Any] = [1, 1.5, True, None, b"start_block"]
    packed = {f"map key {key!r}": msgpack.packb([2, 10.0, {key: 1}]) for key in keys}
    tuples = {f"{name}, as a tuple": msgpack.packb(msgpack.ExtType(TUPLE_EXT, value)) for name, value in packed.items()}
    return {**packed, **tuples}


def mutated(seed: int, count: int) -> Iterator[bytes]:
    """Records with bytes changed, cut, doubled and swapped: most are malformed, some happen to be fine."""
    dice = random.Random(seed)
    pool = [encode(GOOD), *malformed().values()]
    pool = [value for value in pool if len(value) < 2_000]
    for _ in range(count):
        data = bytearray(dice.choice(pool) if dice.random() < 0.3 else pool[0])
        for _ in range(dice.randint(1, 4)):
            where = dice.randrange(len(data) + 1)
            match dice.randrange(4):
                case 0 if where < len(data):
                    data[where] = dice.randrange(256)
                case 1:
                    data[where:where] = dice.randbytes(dice.randint(1, 8))
                case 2:
                    del data[where : where + dice.randint(1, 8)]
                case _:
                    data[where:where] = data[: dice.randint(0, 16)]
        yield bytes(data)
