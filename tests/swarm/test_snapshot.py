from __future__ import annotations

from dataclasses import replace

from swarm.errors import BadRecord
from swarm.snapshot import MAX_RECORD_LIFE_S, Entry, Outcome, PeerState, Reading, Visit, assemble, read_models, read_servers
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


def test_joining_and_leaving_are_taken_at_their_word() -> None:
    assert state_with({}, ServerState.JOINING) is PeerState.JOINING
    assert state_with({}, ServerState.OFFLINE) is PeerState.LEAVING


def test_a_key_that_could_not_be_read_is_kept_apart_from_an_empty_one() -> None:
    reading = Reading(announce(Span(0, 2)).entries, unread=frozenset({"m.2"}))
    model = assemble("demo", NOW, {"m": ModelRecord(4, None)}, {"m": reading}, None).models[0]
    assert model.unread_blocks == {2}
