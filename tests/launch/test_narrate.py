"""Only what changed is told, in the site's own words."""

from __future__ import annotations

from typing import Any

from coordinator.launch.narrate import narrate

ONE, TWO = "QmOneOneOneRcvFJg", "QmTwoTwoTwoAbCdEf"
NAMES = {ONE: "server-4"}


def server(peer_id: str, start: int, end: int, state: str = "online") -> dict[str, Any]:
    return {"peer_id": peer_id, "state": state, "start": start, "end": end}


def seen(*servers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    model = {"prefix": "smol", "num_blocks": 24, "verdict": "complete", "sentence": "runs: every block has a server"}
    return {"items": [{**model, "holes": [], "servers": list(servers), "leases": [], "stale": False, **fields}]}


WHOLE = seen(server(ONE, 0, 12), server(TWO, 12, 24))
BROKEN = {"verdict": "broken", "sentence": "cannot run: blocks 12–17 have no server", "holes": [[12, 18]]}


def test_nothing_new_is_nothing_told() -> None:
    assert narrate(WHOLE, WHOLE) == []
    assert narrate(WHOLE, {"items": [{**WHOLE["items"][0], "observed_at": "later"}]}) == []
    assert narrate(None, {"items": []}) == []


def test_the_first_look_tells_who_is_there_and_the_verdict() -> None:
    assert narrate(None, WHOLE, NAMES) == [
        "server-4 (…RcvFJg) online: blocks 0–11",
        "…AbCdEf online: blocks 12–23",
        "✓ runs: every block has a server",
    ]


def test_a_gap_is_told_after_who_left() -> None:
    assert narrate(WHOLE, seen(server(ONE, 0, 12), **BROKEN)) == [
        "…AbCdEf is gone",
        "✕ cannot run: blocks 12–17 have no server",
    ]


def test_a_change_of_state_is_told() -> None:
    assert narrate(WHOLE, seen(server(ONE, 0, 12), server(TWO, 12, 24, "OFFLINE"))) == ["…AbCdEf offline: blocks 12–23"]


def test_a_change_of_model_is_told_once_at_the_model_it_leads_to() -> None:
    lease = {"id": "1", "peer_id": ONE, "start": 0, "end": 12, "phase": "offered", "reason": "it lacks them", "model": "other"}
    (smol,) = WHOLE["items"]
    before = {"items": [{**smol, "prefix": "other", "servers": []}, smol]}
    now = {"items": [{**item, "leases": [lease]} for item in before["items"]]}
    assert narrate(before, now, NAMES) == ["other: hint: server-4 (…RcvFJg) was asked to serve blocks 0–11: it lacks them"]


def test_a_move_names_both_spans() -> None:
    now = seen(server(ONE, 12, 24, "joining"), server(TWO, 12, 24))
    assert narrate(WHOLE, now, NAMES) == ["server-4 (…RcvFJg) moved from blocks 0–11 to blocks 12–23, joining"]


def test_a_hint_carries_its_reason_once_and_then_its_phases() -> None:
    lease = {"id": "1", "peer_id": ONE, "start": 12, "end": 24, "phase": "offered", "reason": "blocks 12–17 have no server"}
    offered = seen(*WHOLE["items"][0]["servers"], leases=[lease])
    accepted = seen(*WHOLE["items"][0]["servers"], leases=[{**lease, "phase": "accepted"}])
    assert narrate(WHOLE, offered, NAMES) == [
        "hint: server-4 (…RcvFJg) was asked to serve blocks 12–23: blocks 12–17 have no server"
    ]
    assert narrate(offered, offered, NAMES) == []
    assert narrate(offered, accepted, NAMES) == ["hint: server-4 (…RcvFJg) accepted and loads blocks 12–23"]


def test_a_second_hint_to_the_same_server_is_told_beside_the_first() -> None:
    first = {"id": "1", "peer_id": ONE, "start": 0, "end": 12, "phase": "done", "reason": "blocks 0–11 have no server"}
    second = {**first, "id": "2", "start": 12, "end": 24, "phase": "offered", "reason": "blocks 12–17 have no server"}
    servers = WHOLE["items"][0]["servers"]
    assert narrate(seen(*servers, leases=[first]), seen(*servers, leases=[second, first]), NAMES) == [
        "hint: server-4 (…RcvFJg) was asked to serve blocks 12–23: blocks 12–17 have no server"
    ]


def test_staleness_is_told_when_it_begins_and_when_it_ends() -> None:
    stale = seen(*WHOLE["items"][0]["servers"], stale=True)
    assert narrate(WHOLE, stale) == ["the page is stale: no new crawl is believable"]
    assert narrate(stale, WHOLE) == ["the page is fresh again"]


def test_without_a_sentence_the_holes_are_named() -> None:
    now = seen(server(ONE, 0, 12), server(TWO, 12, 24), **{**BROKEN, "sentence": ""})
    assert narrate(WHOLE, now) == ["✕ cannot run: blocks 12–17 without a server"]


def test_with_several_models_each_line_names_its_model() -> None:
    other = {**WHOLE["items"][0], "prefix": "tiny", "servers": []}
    both = {"items": [*WHOLE["items"], other]}
    assert narrate(WHOLE, both) == ["tiny: ✓ runs: every block has a server"]
    assert narrate(both, WHOLE) == ["tiny is no longer announced"]
