"""The wizard: from a card to blocks, a check and a command; then a checklist that says how far a server has come."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from coordinator import appearing, fits, hints
from coordinator.appearing import ANNOUNCED_BY_S, LOADED_BY_S, Seen, checklist
from coordinator.models import Lease
from swarm.snapshot import PeerState
from swarm.wire.doctor import CHECKS, Mark, encode
from swarm.wire.hints import LeaseStep
from tests.coordinator.desk.people import decided
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.coordinator.test_people import page
from tests.swarms import model, peer_id, server

NEW = server("new", 12, 18)


@pytest.mark.django_db
def test_the_wizard_goes_from_memory_to_blocks_to_a_command(client: Client) -> None:
    seen(HOLED)
    text = page(client, "/connect", memory_gb="24", parameters_b="30", precision="bfloat16")
    assert "Fits about 9 blocks" in text
    assert "For a server of 9 blocks" in text
    assert "sepal serve MODEL_FOLDER" in text and "--coordinator http://127.0.0.1:8000" in text
    assert "docker run" in page(client, "/connect", way="container")
    assert "--num-blocks 5" in page(client, "/connect", num_blocks="5")
    assert "reserved for 90 seconds" in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("precision", "flag"), [("nf4", "--quant-type nf4"), ("int8", "--quant-type int8"), ("float16", "--dtype float16")]
)
@pytest.mark.parametrize("way", ["pip", "container", "systemd"])
def test_the_commands_serve_what_was_reckoned_with(client: Client, precision: str, flag: str, way: str) -> None:
    seen(HOLED)
    text = page(client, "/connect", card="rtx-4090", parameters_b="70", precision=precision, way=way)
    doctor, serve = (text.split(f'<pre id="{name}"')[1].split("</pre>")[0] for name in ("doctor", "command"))
    assert flag in doctor and flag in serve
    quantised = precision in ("nf4", "int8")
    assert ("blockserver,quantisation" in text) == (quantised and way == "pip"), (
        "the container holds it, a unit installs nothing"
    )
    assert "its --help says" not in text


@pytest.mark.django_db
def test_what_the_commands_say_fits_is_what_a_server_takes(client: Client) -> None:
    """Every word of the commands is one that `sepal` knows, with the same meaning."""
    from blockserver.config import DTYPES, QUANT_TYPES

    assert {*QUANT_TYPES, *DTYPES} - {"none", "auto"} == set(fits.PRECISIONS)
    seen(HOLED)
    plain = page(client, "/connect")
    assert "--dtype" not in plain and "--quant-type" not in plain, "nothing was reckoned: as the checkpoint has it"
    assert "--dtype bfloat16" in page(client, "/connect", memory_gb="24", parameters_b="30")


@pytest.mark.django_db
def test_a_card_stands_for_its_memory(client: Client) -> None:
    seen(HOLED)
    assert "Fits about 9 blocks" in page(client, "/connect", card="rtx-4090", parameters_b="30")
    assert "Fits about 4 blocks" in page(client, "/connect", card="rtx-4090", memory_gb="12", parameters_b="30")


@pytest.mark.django_db
def test_other_systems_are_told_what_is_different(client: Client) -> None:
    seen(HOLED)
    assert "inside WSL 2" in page(client, "/connect", system="windows")
    assert "WSL" not in page(client, "/connect", system="linux")


@pytest.mark.django_db
def test_the_doctor_s_line_has_the_swarm_in_it_and_its_code_is_explained(client: Client) -> None:
    seen(HOLED)
    code = encode({"gpu": Mark.RIGHT, "port": Mark.ERROR, "clock": Mark.ERROR, "site": Mark.WARNING})
    text = page(client, "/connect", code=code.lower(), memory_gb="24")
    assert "sepal doctor MODEL_FOLDER --prefix tiny-hf --initial-peers ADDRESS --coordinator http://127.0.0.1:8000" in text
    assert "2 things keep this machine from serving" in text and "sudo timedatectl set-ntp true" in text
    assert text.index("<strong>clock") < text.index("<strong>port") < text.index("<strong>site") and "Right: gpu." in text
    assert '<input type="hidden" name="memory_gb" value="24.0">' in text
    assert "Nothing is wrong: go on to step 4." in page(client, "/connect", code=encode({"gpu": Mark.RIGHT}))
    assert "something could be better" in page(client, "/connect", code=encode({"site": Mark.WARNING}))
    assert "Nothing was checked" in page(client, "/connect", code=encode({}))


def test_every_check_has_its_remedy() -> None:
    from coordinator.diagnosis import FIXES, read

    found = read(encode(dict.fromkeys(CHECKS, Mark.ERROR)))
    assert [line.name for line in found.lines] == list(CHECKS) and all(FIXES.values())


@pytest.mark.django_db
def test_where_nothing_is_needed_faster_servers_are(client: Client) -> None:
    seen(model(4, *(server(f"s{n}", 0, 4, throughput=10.0) for n in range(6)), server("t", 0, 3, throughput=90.0)))
    assert "every block has 6 or more servers; most useful now: faster servers for block 3 (slowest, 60 tok/s)" in page(
        client, "/connect"
    )


@pytest.mark.django_db
def test_a_blind_monitor_advises_nothing(client: Client) -> None:
    seen(HOLED, ago_s=600)
    for path in ("/connect", "/connect/watch"):
        assert "No advice now: the monitor cannot see the swarm at the moment" in page(client, path)


@pytest.mark.django_db
def test_watching_begins_with_a_page_of_its_own_that_knows_since_when(client: Client) -> None:
    seen(HOLED)
    before = time.time()
    for path in ("/connect", "/connect/watch"):
        answer = client.get(path, {"model": "tiny-hf", "peer": peer_id("new")})
        assert answer.status_code == 302
        where = urlsplit(answer["Location"])
        asked = parse_qs(where.query)
        assert where.path == "/connect/watch" and asked["peer"] == [peer_id("new")]
        assert before - 1 <= float(asked["since"][0]) <= time.time()
    assert "not announced yet" in page(client, answer["Location"])


@pytest.mark.django_db
def test_the_page_watches_a_server_from_its_first_record_to_its_first_request(client: Client) -> None:
    holed()
    given = ask("new").lease
    assert given is not None
    lease = Lease.objects.get()
    hints.accept(SWARM, lease, LeaseStep(peer=lease.peer_id), datetime.now(UTC))
    Lease.objects.update(progress=0.62)
    watching = {"model": "tiny-hf", "peer": peer_id("new"), "since": time.time()}

    seen(model(30, *HOLED.servers, server("new", 12, 18, PeerState.JOINING)))
    text = page(client, "/connect/watch", **watching)
    assert "loading 62 %</h1>" in text and "it announces blocks 12–17" in text

    seen(model(30, *HOLED.servers, NEW))
    assert "…" + peer_id("new")[-6:] + ": serving</h1>" in page(client, "/connect/watch", **watching)

    hints.answer(SWARM, question("new", serving=NEW.span).model_copy(update={"sessions_active": 1}), datetime.now(UTC))
    text = page(client, "/connect/watch", **watching)
    assert "serving, and in use</h1>" in text and "data-done" in text
    fragment = client.get("/connect/watch", {**watching, "fragment": 1})
    assert fragment.content.decode().strip().startswith("<h1>") and fragment["Cache-Control"] == "no-cache"


@pytest.mark.django_db
def test_who_waits_too_long_is_told_what_is_most_often_wrong(client: Client) -> None:
    seen(HOLED)
    watching = {"model": "tiny-hf", "peer": peer_id("new")}
    text = page(client, "/connect/watch", **watching, since=time.time() - ANNOUNCED_BY_S - 5)
    assert "Not announced after 2 min. Most often: wrong bootstrap address, or no outgoing TCP." in text
    assert "What does the doctor say?" in text
    assert "What does the doctor say?" not in page(client, "/connect/watch", **watching, since=time.time())


@pytest.mark.django_db
def test_a_server_in_quarantine_is_told_so(client: Client) -> None:
    from coordinator.desk.models import Kind

    decided(Kind.QUARANTINE, NEW.peer_id)
    seen(model(30, *HOLED.servers, NEW))
    text = page(client, "/connect/watch", model="tiny-hf", peer=NEW.peer_id, since=1)
    assert "set aside by this site&#x27;s staff</h1>" in text and "sends wrong tensors; until" in text


def states(seen_now: Seen) -> list[str]:
    return [step.state for step in checklist(seen_now, 30).steps]


def test_each_step_lies_behind_it_as_far_as_was_seen() -> None:
    assert states(Seen(None)) == ["now", "later", "later", "later", "later"]
    assert states(Seen(None, waited_s=ANNOUNCED_BY_S + 1)) == ["stuck", "later", "later", "later", "later"]
    assert states(Seen(replace(NEW, state=PeerState.JOINING))) == ["done", "now", "later", "later", "later"]
    assert states(Seen(replace(NEW, state=PeerState.JOINING), since_s=LOADED_BY_S + 1))[1] == "stuck"
    assert states(Seen(replace(NEW, state=PeerState.NOT_CHECKED))) == ["done", "done", "now", "later", "later"]
    assert states(Seen(replace(NEW, state=PeerState.UNREACHABLE))) == ["done", "done", "stuck", "later", "later"]
    assert states(Seen(replace(NEW, state=PeerState.LEAVING)))[0] == "stuck"
    assert states(Seen(NEW)) == ["done", "done", "done", "done", "now"]
    assert states(Seen(NEW, first_request_ago_s=5)) == ["done"] * 5
    assert appearing.checklist(Seen(NEW, via="relay"), 30).steps[2].words == "our last check reached it (relay)"
