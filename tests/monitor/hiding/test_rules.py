"""Who is hidden is not told, and still counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from monitor import queries
from monitor.hiding.models import Hidden, hidden_list
from monitor.hiding.rules import HiddenList, name_key, redacted
from monitor.published import Published, Watch, standing
from swarm.snapshot import Server
from swarm.wire.records import parse_server_record
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


def named(server: Server, name: str, version: str = "2.3.0", **pings: float) -> Server:
    said = replace(server.record, public_name=name, version=version, next_pings={peer_id(p): s for p, s in pings.items()})
    return replace(server, record=said, visit=replace(server.visit, version=None) if server.visit else None)


def seen() -> Watch:
    servers = (
        named(online("a", 0, 2), "Bad  NAME", c=0.1),
        named(online("b", 0, 2), "Good", version="bad name 2", a=0.2, c=0.1),
        named(online("c", 0, 1), "Other"),
    )
    seed(model(2, *servers))
    return queries.watch_everyone(SWARM, NOW + 1)


def shown(of: Watch, hidden: HiddenList) -> Published:
    found = redacted(of, hidden).published
    assert found is not None
    return found


@pytest.mark.parametrize("written", ["bad name", "BAD NAME", " Bad\tName ", "Ｂａｄ Ｎａｍｅ"])
def test_a_name_is_hidden_however_it_is_spelled(written: str) -> None:
    assert HiddenList(frozenset({name_key("Bad Name")})).hides(written)


def test_a_name_is_hidden_as_a_word_and_not_as_a_part_of_one() -> None:
    hidden = HiddenList(frozenset({"bob"}))
    assert hidden.hides("Bob's machine") and not hidden.hides("bobsleigh")


def test_a_hidden_name_is_absent_wherever_a_server_repeats_it_and_coverage_stays() -> None:
    before = seen()
    after = shown(before, HiddenList(frozenset({"bad name"})))
    a, b, c = sorted(after.snapshot.models[0].servers, key=lambda s: [peer_id(n) for n in "abc"].index(s.peer_id))
    assert (a.record.public_name, b.record.public_name, c.record.public_name) == (None, "Good", "Other")
    assert b.record.version is None
    assert (
        standing(after, after.snapshot.models[0]).coverage
        == standing(shown(before, HiddenList()), shown(before, HiddenList()).snapshot.models[0]).coverage
    )


def test_a_hidden_peer_keeps_its_blocks_and_loses_its_id_name_and_pings_also_those_of_others() -> None:
    before = seen()
    Hidden.objects.create(kind="peer", value=peer_id("c"))
    hidden = hidden_list()
    after = shown(before, hidden)
    text = repr(after)
    assert peer_id("c") not in text and "Other" not in text and hidden.shown(peer_id("c")) in text
    assert [b.redundancy for b in standing(after, after.snapshot.models[0]).coverage.blocks] == [3, 2]
    assert all(peer_id("c") not in s.record.next_pings for s in after.snapshot.models[0].servers)


def test_the_planner_sees_everyone_and_pages_do_not() -> None:
    seen()
    Hidden.objects.create(kind="peer", value=peer_id("c"))
    everyone, shown = queries.latest_snapshot(SWARM, NOW + 1), queries.watch(SWARM, NOW + 1).published
    assert peer_id("c") in repr(everyone) and peer_id("c") not in repr(shown)


def test_ids_are_taken_out_of_whatever_json_holds_them_in_full_or_in_short() -> None:
    hidden = HiddenList(peers={peer_id("c"): "hidden-000001"})
    said = {"who": [peer_id("c")], peer_id("c"): f"…{peer_id('c')[-6:]} left", "n": 3}
    assert hidden.scrubbed(said) == {"who": ["hidden-000001"], "hidden-000001": "…000001 left", "n": 3}


def test_a_servers_own_wish_not_to_be_named_is_honoured_before_anything_is_stored() -> None:
    def read(**wish: object) -> str | None:
        return parse_server_record((2, 10.0, {"public_name": "Bob", **wish})).public_name

    assert read(show_public_name=False) is None
    assert read() == read(show_public_name=True) == read(show_public_name="no") == "Bob"


def test_operators_hide_and_show_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("hide", "name", "Bad  NAME", "--reason", "asked for it")
    call_command("hide", "peer", peer_id("c"))
    call_command("hide", "list")
    assert "name bad name" in capsys.readouterr().out and hidden_list().names == {"bad name"}
    call_command("hide", "name", "bad name", "--undo")
    assert not hidden_list().names and peer_id("c") in hidden_list().peers
    with pytest.raises(CommandError):
        call_command("hide", "peer", "nobody")
