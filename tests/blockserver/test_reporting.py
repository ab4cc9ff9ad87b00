"""Reports to a site: signed, seldom, and never in the way of an answer."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from blockserver import reporting as module
from blockserver.client.notes import Notes
from blockserver.reporting import Reporter, reporting
from blockserver.serving.hint_client import HintClient
from swarm.wire.identity import Signer
from tests.blockserver.coordinators import coordinator
from tests.swarms import peer_id

SIGNER = Signer.from_seed(b"r" * 32)
REPORT = "/api/v1/report"


@pytest.fixture(autouse=True)
def _a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_WORD_S", 30.0)


def noted() -> Notes:
    notes = Notes()
    notes.worked(peer_id("a"))
    notes.failed(peer_id("b"), "gone")
    return notes


async def test_at_the_end_what_was_seen_is_told_and_no_text() -> None:
    with coordinator() as site:
        site.answers[REPORT] = {"counted": 2}
        async with reporting(site.url, "tiny-hf", noted()) as reporter:
            assert reporter is not None and not site.asked
        ((path, body),) = site.asked
    assert path == REPORT and body.keys() == {"peer", "model", "servers", "canary"}
    assert body["peer"] == reporter.peer_id and body["model"] == "tiny-hf" and body["canary"] is None
    assert {server["peer_id"]: server["failures"] for server in body["servers"]} == {peer_id("a"): 0, peer_id("b"): 1}


async def test_each_process_has_a_key_of_its_own() -> None:
    async with reporting("http://127.0.0.1:9", "m", Notes()) as one, reporting("http://127.0.0.1:9", "m", Notes()) as other:
        assert one is not None and other is not None and one.peer_id != other.peer_id


async def test_without_a_site_nobody_is_told() -> None:
    async with reporting(None, "tiny-hf", noted()) as reporter:
        assert reporter is None


async def test_it_tells_on_its_period_and_not_more_often() -> None:
    with coordinator() as site:
        site.answers[REPORT] = {"counted": 2}
        async with HintClient(site.url, SIGNER) as client:
            reporter = Reporter("tiny-hf", noted(), client, SIGNER.peer_id, period_s=3_600.0)
            assert (await reporter.tell()) is not None
            reporter.notes.worked(peer_id("a"))
            assert (await reporter.tell()) is None, "too soon"
            await reporter.last_word()
            assert len(site.asked) == 1
            often = Reporter("tiny-hf", reporter.notes, client, SIGNER.peer_id, period_s=0.001)
            running = asyncio.create_task(often.run())
            async with asyncio.timeout(20):
                while len(site.asked) < 3:
                    often.notes.worked(peer_id("a"))
                    await asyncio.sleep(0)
            running.cancel()


@pytest.mark.parametrize("answer", [429, 500, b"no JSON"])
async def test_a_site_that_refuses_or_talks_nonsense_stops_nothing(answer: object) -> None:
    with coordinator() as site:
        site.answers[REPORT] = answer
        async with reporting(site.url, "tiny-hf", noted()):
            pass
        assert len(site.asked) == 1


async def test_a_site_that_is_away_or_silent_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_WORD_S", 0.5)
    async with reporting("http://127.0.0.1:9", "tiny-hf", noted()):
        pass

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await reader.read()
        writer.close()

    called = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    monkeypatch.setattr(module, "HintClient", partial(HintClient, timeout_s=3_600.0))  # Only the last word's own limit ends it.
    async with asyncio.timeout(60):
        async with reporting(f"http://{host}:{port}", "tiny-hf", noted()):
            pass
        await called.wait()
    server.close()


async def test_a_fault_of_ours_ends_neither_the_telling_nor_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, tried = noted(), asyncio.Event()

    def broken() -> list[object]:
        tried.set() if seen else seen.append(True)
        raise ValueError("ours")

    seen: list[bool] = []
    monkeypatch.setattr(notes, "take", broken)
    async with reporting("http://127.0.0.1:9", "tiny-hf", notes, period_s=0.001), asyncio.timeout(20):
        await tried.wait()
