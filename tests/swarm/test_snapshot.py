from __future__ import annotations

from dataclasses import replace

import pytest

from swarm.claims import read_servers
from swarm.errors import BadRecord
from swarm.snapshot import (
    LOADING_LIMIT_S,
    MAX_RECORD_LIFE_S,
    Entry,
    Index,
    Outcome,
    PeerState,
    Reading,
    Server,
    Visit,
    assemble,
    read_index,
    read_models,
    size_from_keys,
)
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.swarms import peer_id

NOW = 1_000_000.0
ME = peer_id("me")


def announce(span: Span, state: ServerState = ServerState.ONLINE, claims: Span | None = None, life: float = 60.0) -> Reading:
    record = ServerRecord(state, 5.0, claims or span)
    return Reading({f"m.{block}": [Entry(ME, record.to_wire(), NOW + life)] for block in span})


def merged(*readings: Reading) -> Reading:
    keys = {key for reading in readings for key in reading.entries}
    return Reading({key: [entry for reading in readings for entry in reading.entries.get(key, ())] for key in keys})


def only_span(reading: Reading, num_blocks: int = 10) -> Span:
    servers, _ = read_servers("m", num_blocks, reading, NOW)
    return servers[ME][1]


def test_a_claim_wider_than_the_keys_it_stands_under_is_clipped_to_them() -> None:
    assert only_span(announce(Span(2, 4), claims=Span(0, 10))) == Span(2, 4)


def test_old_records_of_a_server_that_moved_do_not_widen_its_span() -> None:
    assert only_span(merged(announce(Span(0, 5), life=30), announce(Span(5, 10), life=60))) == Span(5, 10)


def test_a_move_to_an_overlapping_span_counts_the_new_span_only() -> None:
    offline = announce(Span(0, 3), ServerState.OFFLINE, life=59)
    assert only_span(merged(announce(Span(0, 5), life=30), offline, announce(Span(3, 8), life=60))) == Span(3, 8)


def test_an_older_server_announces_no_span_and_has_its_longest_run_of_keys() -> None:
    record = replace(ServerRecord(ServerState.ONLINE, 5.0), span=None)
    entries = {f"m.{block}": [Entry(ME, record.to_wire(), NOW + 60)] for block in (0, 4, 5, 6)}
    assert only_span(Reading(entries)) == Span(4, 7)


NO_SPAN = replace(ServerRecord(ServerState.ONLINE, 5.0), span=None).to_wire()


def spanless(*blocks: int, life: float = 60.0) -> Reading:
    return Reading({f"m.{block}": [Entry(ME, NO_SPAN, NOW + life)] for block in blocks})


def test_old_records_do_not_widen_the_span_of_a_server_that_announces_none() -> None:
    for old, new in (((0, 1, 2, 3), (4, 5, 6, 7)), ((4, 5, 6, 7), (0, 1, 2, 3)), ((0, 1, 2, 3), (6, 7))):
        reading = merged(spanless(*old, life=30), spanless(*new, life=150))
        servers, dropped = read_servers("m", 10, reading, NOW)
        assert servers[ME].span == Span(new[0], new[-1] + 1)
        (left,) = dropped
        assert (left.subkey, left.reason) == (ME, "left-over")
        assert left.detail == f"blocks {old[0]}–{old[-1]}: left over from before its newest announcement"


def test_a_key_that_one_announcement_missed_makes_no_hole_in_a_span() -> None:
    servers, dropped = read_servers("m", 10, merged(spanless(3, life=30), spanless(0, 1, 2, 4, 5, life=150)), NOW)
    assert servers[ME].span == Span(0, 6) and dropped == []
    edge, _ = read_servers("m", 10, merged(spanless(0, life=30), spanless(1, 2, 3, life=150)), NOW)
    assert edge[ME].span == Span(1, 4) and edge[ME].others == (Span(0, 4),), "at an edge the server itself is to be asked"


def test_what_else_stands_in_the_dht_for_a_peer_is_to_be_asked_for_the_largest_first() -> None:
    own, forged = announce(Span(0, 8), life=30), announce(Span(0, 2), life=90)
    replaced = Reading({**own.entries, **forged.entries})
    assert read_servers("m", 10, replaced, NOW)[0][ME][1:] == (Span(0, 2), NOW + 90, (Span(2, 8),))
    gap = Reading({key: entries for key, entries in own.entries.items() if key != "m.5"})
    assert read_servers("m", 10, gap, NOW)[0][ME][1:] == (Span(0, 5), NOW + 30, (Span(0, 8),))
    many = merged(*(announce(Span(block, block + 1), life=30 + block) for block in range(10)))
    assert read_servers("m", 10, many, NOW)[0][ME].others == (Span(0, 1), Span(1, 2))


def test_an_expired_record_counts_for_nothing_and_an_expiry_years_ahead_is_capped() -> None:
    assert read_servers("m", 10, announce(Span(0, 5), life=-1), NOW) == ({}, [])
    servers, _ = read_servers("m", 10, announce(Span(0, 5), life=3e8), NOW)
    assert servers[ME][2] == NOW + MAX_RECORD_LIFE_S


def test_bad_records_beside_a_good_one_cost_only_themselves_and_are_counted() -> None:
    good = announce(Span(0, 2))
    bad = Reading(
        {
            "m.0": [
                Entry("no peer id", (2, 1.0, {}), NOW + 60),
                Entry(7, (2, 1.0, {}), NOW + 60),
                Entry(peer_id("a"), BadRecord("undecodable", "…"), NOW + 60),
                Entry(peer_id("b"), (2, -1.0, {}), NOW + 60),
            ]
        }
    )
    servers, dropped = read_servers("m", 10, merged(good, bad), NOW)
    assert list(servers) == [ME]
    assert sorted(d.reason for d in dropped) == ["subkey", "subkey", "throughput", "undecodable"]


def test_a_model_prefix_with_a_dot_is_dropped_before_a_key_is_built_from_it() -> None:
    entries = [Entry("ok-hf", {"num_blocks": 3, "repository": None}, NOW), Entry("a.b", {"num_blocks": 3}, NOW)]
    models, dropped = read_models(Reading({MODELS_KEY: entries}))
    assert list(models) == ["ok-hf"]
    assert [d.reason for d in dropped] == ["prefix"]


def state_with(visits: dict[str, Visit] | None, announced: ServerState = ServerState.ONLINE) -> PeerState:
    reading = announce(Span(0, 2), announced)
    return assemble("demo", NOW, {"m": ModelRecord(2, None)}, {"m": reading}, visits).models[0].servers[0].state


def test_announced_is_not_served() -> None:
    assert state_with({}) is PeerState.NOT_CHECKED
    assert state_with({ME: Visit(ME, NOW, Outcome.TIMEOUT)}) is PeerState.UNREACHABLE
    assert state_with({ME: Visit(ME, NOW, Outcome.NOT_HELD)}) is PeerState.UNREACHABLE
    assert state_with({ME: Visit(ME, NOW, Outcome.ANSWERED)}) is PeerState.ONLINE
    assert state_with(None) is PeerState.ONLINE


def test_joining_and_leaving_are_shown_as_said_where_no_answer_says_otherwise() -> None:
    denied = {ME: Visit(ME, NOW, Outcome.PROTOCOL_ABSENT)}
    for visits in (None, denied):
        assert state_with(visits, ServerState.JOINING) is PeerState.JOINING
        assert state_with(visits, ServerState.OFFLINE) is PeerState.LEAVING
    assert state_with({}, ServerState.JOINING) is PeerState.NOT_CHECKED, "nobody knows whether anybody is there"
    assert state_with({}, ServerState.OFFLINE) is PeerState.LEAVING


def test_a_key_that_could_not_be_read_is_kept_apart_from_an_empty_one() -> None:
    reading = Reading(announce(Span(0, 2)).entries, unread=frozenset({"m.2"}))
    model = assemble("demo", NOW, {"m": ModelRecord(4, None)}, {"m": reading}, None).models[0]
    assert model.unread_blocks == {2}


CLAIMED = Span(0, 2)


def one(record_state: ServerState, outcome: Outcome, asked: Span) -> Server:
    """A server that announces `CLAIMED` in this state and was asked for `asked`."""
    visit = {ME: Visit(ME, NOW, outcome, span=asked)}
    reading = {"m": announce(CLAIMED, record_state)}
    (server,) = assemble("demo", NOW, {"m": ModelRecord(10, None)}, reading, visit).models[0].servers
    return server


def test_a_servers_own_answer_beats_a_forged_state() -> None:
    for forged, word in ((ServerState.OFFLINE, "leaving"), (ServerState.JOINING, "joining")):
        server = one(forged, Outcome.ANSWERED, Span(0, 2))
        assert server.state is PeerState.ONLINE
        assert server.conflict == f"its record says {word}, but it answers for blocks 0–1"
        denied = one(forged, Outcome.NOT_HELD, Span(0, 2))
        assert denied.state.value == word and denied.conflict == ""


@pytest.mark.parametrize("said", [PeerState.JOINING, PeerState.LEAVING])
@pytest.mark.parametrize("record_state", list(ServerState))
def test_a_server_that_says_itself_that_it_loads_or_leaves_does_and_that_is_no_conflict(
    said: PeerState, record_state: ServerState
) -> None:
    visits = {ME: Visit(ME, NOW, Outcome.ANSWERED, span=CLAIMED, said=said)}
    reading = {"m": announce(CLAIMED, record_state)}
    model = assemble("demo", NOW, {"m": ModelRecord(10, None)}, reading, visits).models[0]
    (server,) = model.servers
    assert (server.state, server.conflict) == (said, "")
    known = {"m": {ME: replace(server, state=PeerState.ONLINE)}}
    gone = assemble("demo", NOW, {"m": ModelRecord(10, None)}, {}, visits, known=known).models[0].servers[0]
    assert (gone.state, gone.conflict) == (said, "")


@pytest.mark.parametrize("readings", [{"m": announce(CLAIMED, ServerState.JOINING)}, {}], ids=["announced", "not in the DHT"])
def test_nobody_is_waited_for_for_ever_who_says_himself_that_he_loads(readings: dict[str, Reading]) -> None:
    model = ModelRecord(10, None)
    known = {"m": {ME: one(ServerState.ONLINE, Outcome.ANSWERED, CLAIMED)}}
    waited = []
    for at in (NOW, NOW + LOADING_LIMIT_S, NOW + LOADING_LIMIT_S + 1):
        visits = {ME: Visit(ME, at, Outcome.ANSWERED, span=CLAIMED, said=PeerState.JOINING)}
        server = assemble("demo", at, {"m": model}, readings, visits, known=known).models[0].servers[0]
        waited.append(server.awaited)
        known = {"m": {ME: server}}
    assert waited == [True, True, False]


def test_a_servers_own_answer_beats_a_forged_span() -> None:
    server = one(ServerState.ONLINE, Outcome.ANSWERED, asked=Span(4, 8))
    assert (server.state, server.span) == (PeerState.ONLINE, Span(4, 8))
    assert server.conflict == "its record claims blocks 0–1, but it answers for blocks 4–7"
    honest = one(ServerState.ONLINE, Outcome.ANSWERED, asked=Span(0, 2))
    assert honest.conflict == ""


def test_a_server_without_a_record_counts_as_long_as_it_answers() -> None:
    before = Server(ME, Span(2, 4), PeerState.ONLINE, ServerRecord(ServerState.ONLINE, 5.0, Span(2, 4)), NOW + 9)

    def seen(outcome: Outcome, unread: frozenset[str] = frozenset()) -> tuple[Server, ...]:
        visits = {ME: Visit(ME, NOW, outcome, span=Span(2, 4))}
        reading = {"m": Reading({}, unread)}
        return assemble("demo", NOW, {"m": ModelRecord(6, None)}, reading, visits, (), {"m": {ME: before}}).models[0].servers

    (server,) = seen(Outcome.ANSWERED)
    assert server.state is PeerState.ONLINE and server.conflict.startswith("no record of it stands in the DHT now")
    (unread,) = seen(Outcome.ANSWERED, frozenset({"m.2"}))
    assert unread.conflict == "", "what could not be read contradicts nothing"
    assert seen(Outcome.TIMEOUT) == ()


def index(*entries: tuple[str, object, float], known: dict[str, ModelRecord] | None = None) -> Index:
    return read_index(Reading({MODELS_KEY: [Entry(prefix, value, NOW + at) for prefix, value, at in entries]}), known)


GOOD = {"num_blocks": 32, "repository": "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct"}
LLAMA = ModelRecord(32, GOOD["repository"])  # type: ignore[arg-type]
BAD_ENTRIES = [
    [32, "https://…"],
    {**GOOD, "num_blocks": 0},
    {**GOOD, "num_blocks": "32"},
    {**GOOD, "num_blocks": 10**9},
    {**GOOD, "repository": 7},
]


@pytest.mark.parametrize("bad", BAD_ENTRIES, ids=str)
def test_a_malformed_entry_beside_a_good_one_costs_only_itself_and_is_a_conflict(bad: object) -> None:
    """The known incident: one node wrote an array where a map is due, with a later expiry, and the model vanished."""
    for found in (
        index(("Llama-hf", GOOD, 1), ("Llama-hf", bad, 2)),
        index(("Llama-hf", bad, 2), known={"Llama-hf": LLAMA}),
    ):
        assert found.models == {"Llama-hf": LLAMA} and len(found.dropped) == 1
        assert found.conflicts["Llama-hf"].startswith("an entry of it in the index of models cannot be used")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({**GOOD, "num_blocks": 31}, "the index of models also says 31 blocks; 32 stands"),
        ({"num_blocks": 32}, "also names no repository; https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct stands"),
        ({**GOOD, "repository": "http://elsewhere.example/x"}, "also names http://elsewhere.example/x"),
    ],
)
def test_the_last_good_value_of_a_model_stays_where_the_index_says_otherwise(other: object, words: str) -> None:
    found = index(("Llama-hf", other, 2), known={"Llama-hf": LLAMA})
    assert found.models == {"Llama-hf": LLAMA} and words in found.conflicts["Llama-hf"]
    assert index(("Llama-hf", other, 2)).conflicts == {}, "nothing contradicts the only word there is"


def test_a_prefix_that_is_named_without_a_usable_entry_is_to_be_sized() -> None:
    found = index(("Llama-hf", [32], 1), ("no prefix", GOOD, 1), ("fine", GOOD, 1))
    assert found.unsized == {"Llama-hf"} and list(found.models) == ["fine"]


def test_a_models_size_shows_in_the_keys_under_which_servers_stand() -> None:
    assert size_from_keys("m", merged(announce(Span(0, 4)), announce(Span(4, 7), life=30)), NOW) == 4
    assert size_from_keys("m", announce(Span(3, 7)), NOW) == 7
    assert size_from_keys("m", Reading({}), NOW) is None
