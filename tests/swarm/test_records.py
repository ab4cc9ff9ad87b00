"""Every bad record is a BadRecord with a reason, and nothing else; every good one survives the wire."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import msgpack
import pytest
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadRecord
from swarm.wire.codec import MAX_VALUE_BYTES, as_map, decode, encode
from swarm.wire.keys import default_prefix, parse_peer_id, parse_prefix
from swarm.wire.records import ModelRecord, ServerRecord, ServerState, parse_model_record, parse_server_record
from swarm.wire.spans import Span
from swarm.wire.text import clean_text
from tests.strategies import whatever
from tests.swarms import peer_id

MALLARD = (
    2,
    1040.823002928876,
    {
        "public_name": "🦆Mallard🌞",
        "version": "2.0.1.post2",
        "network_rps": 1185.4980980484086,
        "forward_rps": 9887.81852782432,
        "inference_rps": 343.100557603763,
        "torch_dtype": "bfloat16",
        "quant_type": "nf4",
        "using_relay": False,
        "cache_tokens_left": 1179648,
        "next_pings": {peer_id("next"): 0.0017, peer_id("far"): math.inf},
    },
)


def test_a_record_of_a_real_server_of_an_older_version_is_understood() -> None:
    record = parse_server_record(decode(MSGPackSerializer.dumps(MALLARD)))
    assert record.state is ServerState.ONLINE
    assert record.public_name == "🦆Mallard🌞"
    assert record.span is None
    assert record.cache_tokens_left is not None
    assert record.cache_tokens_left // (2 * 16) == 36864
    assert record.next_pings[peer_id("far")] == math.inf


def test_what_we_write_is_what_hivemind_reads_tuples_and_floats_included() -> None:
    record = ServerRecord(
        ServerState.JOINING, 3.0, Span(2, 6), public_name="x", adapters=("a", "b"), forward_rps=5.0, cache_tokens_left=7
    )
    written = MSGPackSerializer.loads(encode(record.to_wire()))
    assert isinstance(written, tuple)
    assert isinstance(written[1], float)
    assert isinstance(written[2]["forward_rps"], float)
    assert written[2]["adapters"] == ("a", "b")
    assert parse_server_record(written) == record


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("text", "shape"),
        ((2,), "shape"),
        ((2, 1.0, [1]), "shape"),
        ((2, 1.0, {1: 2}), "shape"),
        ((3, 1.0, {}), "state"),
        ((True, 1.0, {}), "state"),
        (("2", 1.0, {}), "state"),
        ((2, 1, {}), "throughput"),
        ((2, math.nan, {}), "throughput"),
        ((2, math.inf, {}), "throughput"),
        ((2, -1.0, {}), "throughput"),
        ((2, 1e300, {}), "throughput"),
        ((2, 1.0, {"start_block": 20, "end_block": 5}), "span"),
        ((2, 1.0, {"start_block": 5, "end_block": 5}), "span"),
        ((2, 1.0, {"start_block": -1, "end_block": 5}), "span"),
        ((2, 1.0, {"start_block": 0, "end_block": 1_000_000}), "span"),
        ((2, 1.0, {"start_block": 0.0, "end_block": 5}), "span"),
        ((2, 1.0, {"start_block": 0}), "span"),
    ],
)
def test_a_bad_server_record_is_refused_with_its_reason(value: object, reason: str) -> None:
    with pytest.raises(BadRecord) as caught:
        parse_server_record(value)
    assert caught.value.reason == reason


def test_a_rate_that_is_not_above_zero_is_unknown() -> None:
    record = parse_server_record((2, 0.0, {"inference_rps": 0.0, "forward_rps": -3.0, "network_rps": math.nan}))
    assert (record.throughput, record.inference_rps, record.forward_rps, record.network_rps) == (None,) * 4


@pytest.mark.parametrize(
    "value", [[32, "https://…"], {"num_blocks": 0}, {"num_blocks": "32"}, {"num_blocks": 10**9}, {"num_blocks": True}, {}, None]
)
def test_a_bad_model_record_is_refused(value: object) -> None:
    with pytest.raises(BadRecord):
        parse_model_record(value)


def test_a_model_from_a_folder_has_no_repository() -> None:
    assert parse_model_record({"num_blocks": 30, "repository": None}) == ModelRecord(30, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 2_000 + b"\x01",
        msgpack.packb({1: 2}),
        msgpack.packb(msgpack.ExtType(1, b"x")),
        encode(MALLARD)[:-1],
        b"\xc4" + bytes([200]) + b"x",
        b"\x00" * (MAX_VALUE_BYTES + 1),
        MSGPackSerializer.dumps(((((((((((1,),),),),),),),),),)),
    ],
    ids=["empty", "no msgpack", "deep", "int key", "foreign extension", "cut", "short", "large", "deep tuples"],
)
def test_undecodable_bytes_end_in_a_bad_record(data: bytes) -> None:
    with pytest.raises(BadRecord):
        parse_server_record(decode(data))


@given(st.binary(max_size=200))
def test_whatever_the_bytes_nothing_but_a_bad_record_is_raised(data: bytes) -> None:
    with contextlib.suppress(BadRecord):
        parse_server_record(decode(data))


FIELDS = ["start_block", "end_block", "public_name", "adapters", "cache_tokens_left", "next_pings", "using_relay", "version"]


@given(whatever | st.tuples(st.integers(0, 2), st.floats(0, 10), st.dictionaries(st.sampled_from(FIELDS), whatever)))
def test_whatever_the_value_nothing_but_a_bad_record_is_raised(value: object) -> None:
    try:
        record = parse_server_record(value)
    except BadRecord:
        return
    assert parse_server_record(record.to_wire()) == record


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-46, 1e-4])
def test_rates_that_no_machine_is_so_slow_to_have_are_unknown(rate: float) -> None:
    record = parse_server_record((2, rate, {"network_rps": rate, "forward_rps": rate, "inference_rps": rate}))
    assert (record.throughput, record.network_rps, record.forward_rps, record.inference_rps) == (None,) * 4


@pytest.mark.parametrize("seconds", [1e308, 3_601.0, -1.0, math.nan, "0.1", 1])
def test_a_ping_that_nobody_would_have_waited_for_is_none(seconds: object) -> None:
    assert parse_server_record((2, 1.0, {"next_pings": {peer_id("a"): seconds}})).next_pings == {}


@pytest.mark.parametrize("text", ["\x00", "\u202e", "x" * 10_000])
def test_a_refusal_quotes_nothing_that_hides_and_not_much(text: str) -> None:
    for refused in (
        lambda: parse_server_record((text, 1.0)),
        lambda: parse_server_record((2, text)),
        lambda: parse_server_record((2, 1.0, {"start_block": text, "end_block": 3})),
        lambda: parse_model_record({"num_blocks": text}),
    ):
        with pytest.raises(BadRecord) as caught:
            refused()
        assert caught.value.detail.isprintable() and len(caught.value.detail) < 200


@pytest.mark.parametrize(
    "value", [7, b"x", "", "me", "Qm" + "x" * 44, "0OIl", "Qmai8PYDczXNvBSqvpNK9AG8PR7C58g4DKQAawdfVGyyG" * 3]
)
def test_what_is_no_peer_id_is_refused(value: object) -> None:
    with pytest.raises(BadRecord):
        parse_peer_id(value)


@pytest.mark.parametrize("value", ["QmReoWRnHVunantaNUTKibAqX3YyYyzktiSf6U9j47i3Hh", peer_id("ed25519")])
def test_rsa_and_ed25519_peer_ids_are_understood(value: str) -> None:
    assert parse_peer_id(value) == value


@pytest.mark.parametrize("value", ["a.b", "a b", "", "x" * 200, 5, None, 'a"b'])
def test_a_prefix_with_a_dot_or_a_space_is_refused(value: object) -> None:
    with pytest.raises(BadRecord):
        parse_prefix(value)


@pytest.mark.parametrize(
    ("repository", "prefix"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3-1-8B-Instruct-hf"),
        ("bigscience/bloom-7b1", "bloom-7b1"),
        ("huggyllama/llama-65b-hf", "llama-65b-hf"),
    ],
)
def test_the_default_prefix_is_petals_one(repository: str, prefix: str) -> None:
    assert default_prefix(repository) == prefix


def test_text_of_strangers_loses_what_hides_or_reorders_other_text() -> None:
    assert clean_text('2.0"\n} evil‮txt.exe\x00') == '2.0" } eviltxt.exe'
    assert clean_text("👨‍👩‍👧 family") == "👨‍👩‍👧 family"
    assert clean_text("‮\n ") is None
    assert clean_text("x" * 500) == "x" * 64
    assert clean_text(5) is None


KWAAI = [
    2,
    10.0,
    {
        "start_block": 0,
        "end_block": 8,
        "public_name": "KwaaiNet-Test",
        "version": "kwaai-0.1.0",
        "network_rps": 10.0,
        "forward_rps": 5.0,
        "inference_rps": 5.0,
        "torch_dtype": "float16",
    },
]


def test_a_record_is_a_tuple_and_one_in_the_wrong_extension_or_cut_short_is_none() -> None:
    """The known incident: a node wrote its record with another extension code, and the monitor showed nobody any more."""
    packed = msgpack.packb(KWAAI)
    as_tuple = msgpack.packb(msgpack.ExtType(0x40, packed))
    record = parse_server_record(decode(as_tuple))
    assert (record.public_name, record.span, record.throughput) == ("KwaaiNet-Test", Span(0, 8), 10.0)
    assert parse_server_record(decode(packed)) == record, "a plain array says the same, and readers take it"
    for bad in (msgpack.packb(msgpack.ExtType(1, packed)), as_tuple[:-1], packed[:-1]):
        with pytest.raises(BadRecord, match="undecodable"):
            decode(bad)


RECORDED = Path(__file__).parent.parent / "data" / "petals" / "llama"


def test_a_real_petals_servers_answer_to_rpc_info_is_read_past_its_tensor_descriptors() -> None:
    calls = json.loads((RECORDED / "manifest.json").read_text())["calls"]
    files = [name for call in calls if call["rpc"].endswith("rpc_info") for kind, name in call["events"] if kind == "response"]
    answers = [runtime_pb2.ExpertInfo.FromString((RECORDED / name).read_bytes()).serialized_info for name in files]
    decoded = [as_map(decode(answer, foreign=True)) for answer in answers]
    assert all(isinstance(answer["cache_tokens_available"], int) for answer in decoded)
    assert any("inference_schema" in answer for answer in decoded)
    with pytest.raises(BadRecord, match="unknown msgpack extension 81"):
        [decode(answer) for answer in answers]
