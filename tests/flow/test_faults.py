"""Each process of the site dies in turn. Meanwhile the site says what it knows and how old that is; then it goes on by itself.

Nothing stored is lost, and not one minute is counted as downtime: the swarm itself ran all the while.
"""

from __future__ import annotations

import html
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from coordinator.launch import kernel
from coordinator.launch.run_folder import read_json
from tests.flow.conftest import RunningDemo, running_demo

pytestmark = pytest.mark.slow

INTERVAL_S = 4.0
STALE_AFTER_S = 3 * INTERVAL_S
PATIENCE_S = 240.0
"""A worker that is started anew imports torch; on a busy machine that takes its time."""
LOOK_EVERY_S = 0.25
LOOKS_AT_AN_OUTAGE = 10
ANSWERS_WITHIN_S = 60.0
BLOCKS = 30


@dataclass(frozen=True)
class Fault:
    """`pick` finds the process; `silent` where the site itself cannot answer meanwhile."""

    name: str
    child: str
    word: str
    silent: bool = False


# The crawl worker dies just after the bootstrap peers: until servers have announced again, these answer for an empty DHT, and
# a crawler that is started in this time and knows nobody else reads just that. The gate must not believe it.
FAULTS = (
    Fault("p2pd of the crawl worker", "crawl", "p2pd"),
    Fault("Redis", "valkey", "valkey"),
    Fault("the default worker", "worker", "celery"),
    Fault("beat", "beat", "celery"),
    Fault("the first bootstrap peer", "bootstrap", "bootstrap"),
    Fault("the second bootstrap peer", "bootstrap-2", "bootstrap"),
    Fault("the crawl worker", "crawl", "celery"),
    Fault("Postgres", "postgres", "postgres", silent=True),
    Fault("the web process", "web", "coordinator.web", silent=True),
)


@pytest.fixture
def demo(demo_model: Path, tmp_path: Path) -> Iterator[RunningDemo]:
    options = ["--servers", "2", "--bootstraps", "2", "--blocks", str(BLOCKS), "--crawl-interval", f"{INTERVAL_S:g}"]
    with running_demo(demo_model, tmp_path / "run", options) as demo:
        yield demo


def test_whatever_dies_the_site_tells_the_truth_and_goes_on(demo: RunningDemo) -> None:
    database_url = demo.database_url
    started = time.time()
    wait_until(lambda: seen_whole(demo, since=started), "the swarm to be whole")
    begun = time.time()
    crawls: set[int] = set()
    for fault in FAULTS:
        known = victim(demo, fault)
        killed = time.time()
        print(f"{killed - begun:6.1f} s: {fault.name} killed")
        if fault.child == "postgres":
            kill_and_see_what_pages_say(demo, fault, known)
        else:
            os.kill(known.pid, signal.SIGKILL)
        wait_until(partial(is_back, demo, fault, known, killed), f"{fault.name} to be back, and the swarm to be seen")
        stored = stored_crawls(database_url)
        assert crawls <= stored, f"{fault.name}: what was stored is lost"
        crawls = stored
    with psycopg.connect(database_url) as database:
        asked = "SELECT count(*) FROM monitor_modelminute WHERE ts > to_timestamp(%s) AND NOT isempty(missing)"
        assert database.execute(asked, [begun]).fetchone() == (0,), "false downtime"
        asked = "SELECT count(*) FROM monitor_peersample WHERE ts > to_timestamp(%s) AND NOT up"
        assert database.execute(asked, [begun]).fetchone() == (0,), "a server that ran all the while is said to have been away"
        asked = "SELECT count(*) FROM monitor_incident WHERE kind = 'hole' AND started_before > to_timestamp(%s)"
        assert database.execute(asked, [begun]).fetchone() == (0,), "a false incident"
        open_blindness = "SELECT count(*) FROM monitor_incident WHERE kind = 'blind' AND ended_before IS NULL"
        assert database.execute(open_blindness).fetchone() == (0,)


def kill_and_see_what_pages_say(demo: RunningDemo, fault: Fault, known: kernel.Mark) -> None:
    """Postgres stays away for as long as it takes to look. Those of its processes that answer somebody end a little later than
    the first of all; from then on no page can be a new one."""
    with demo.nothing_started_anew():
        os.kill(known.pid, signal.SIGKILL)
        wait_until(lambda: not answering(demo), "the rest of Postgres to end")
        for _ in range(LOOKS_AT_AN_OUTAGE):
            assert page_says(demo, fault) in (Said.CANNOT_LOOK, Said.LAST_PAGE), f"{fault.name}: an old page that is not marked"
            truthful(demo, fault)


def answering(demo: RunningDemo) -> list[kernel.Mark]:
    """Postgres' processes for its callers."""
    marks = [kernel.mark(pid) for pid in kernel.descendants(demo.launcher_pid)]
    return [mark for mark in marks if mark is not None and mark.command[0].startswith("postgres:")]


def is_back(demo: RunningDemo, fault: Fault, lost: kernel.Mark, killed: float) -> bool:
    """The truth at every look; at last another process in its place, ready, and a crawl that began after the loss."""
    truthful(demo, fault)
    if not seen_whole(demo, since=killed):
        return False
    if find(demo, fault) in (None, lost):
        return False
    ready = demo.run_dir / "ready" / f"{fault.child}.json"
    return fault.word not in ("celery", "bootstrap") or ready.stat().st_mtime > killed


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(LOOK_EVERY_S)


def document(demo: RunningDemo) -> dict[str, Any] | None:
    """None where nobody answers there, or where a problem document says that the database does not."""
    try:
        answer = httpx.get(f"{demo.site}/api/v1/models", timeout=ANSWERS_WITHIN_S)
    except httpx.TransportError:
        return None
    said = dict(answer.json())
    if answer.status_code == 200:
        return said
    assert answer.headers["content-type"].startswith("application/problem+json"), answer.headers["content-type"]
    assert answer.status_code == said["status"] == 503, said
    assert "this site's database does not answer; that says nothing about the swarm" in said["detail"], said
    assert "items" not in said, "programs get no old answer that looks like a new one"
    return None


def truthful(demo: RunningDemo, fault: Fault) -> None:
    """Never empty, never broken, and never fresh in word when it is old in fact; away in word only where Postgres is."""
    asked = time.time()
    said = document(demo)
    if said is None:
        assert fault.silent, f"{fault.name}: the site does not answer"
        says = page_says(demo, fault)
        assert fault.child == "postgres" or says in (Said.NEW, Said.NOTHING), f"{fault.name}: {says.value}"
        return
    (model,) = said["items"]
    assert model["verdict"] in ("complete", "unknown"), f"{fault.name}: {model['sentence']}"
    assert (model["verdict"] == "unknown") == model["stale"] == said["stale"]
    age_s = asked - datetime.fromisoformat(said["observed_at"]).timestamp()
    assert said["stale"] or age_s <= STALE_AFTER_S + 1, f"{fault.name}: {age_s:.0f} s old and called fresh"


class Said(Enum):
    """What a page says of the database."""

    NOTHING = "nobody answers there"
    CANNOT_LOOK = "that this site cannot look"
    LAST_PAGE = "that this is the last page"
    NEW = "nothing: it is a new page"


def page_says(demo: RunningDemo, fault: Fault) -> Said:
    try:
        page = httpx.get(f"{demo.site}/", timeout=ANSWERS_WITHIN_S)
    except httpx.TransportError:
        return Said.NOTHING
    words = html.unescape(page.text)
    if page.status_code == 503:
        assert "This site's database does not answer. That says nothing about the swarm" in words, f"{fault.name}: {words}"
        return Said.CANNOT_LOOK
    assert page.status_code == 200, f"{fault.name}: {words}"
    if 'id="outage"' not in page.text:
        return Said.NEW
    marked = re.search(r"This site's database does not answer: what you see is from (.+?), and may have changed", words)
    assert marked and page.headers["cache-control"] == "no-store", f"{fault.name}: {words}"
    return Said.LAST_PAGE


def seen_whole(demo: RunningDemo, since: float) -> bool:
    said = document(demo)
    if said is None or said["stale"] or not said["items"]:
        return False
    observed = datetime.fromisoformat(said["observed_at"]).timestamp()
    return said["items"][0]["verdict"] == "complete" and observed > since


def victim(demo: RunningDemo, fault: Fault) -> kernel.Mark:
    found = find(demo, fault)
    assert found is not None, f"there is no {fault.word} below {fault.child}"
    return found


def find(demo: RunningDemo, fault: Fault) -> kernel.Mark | None:
    """The launcher's child of that name, or the process below it whose command holds the word: not its leash."""
    for entry in read_json(demo.run_dir / "processes.json"):
        marked = [kernel.mark(pid) for pid in (entry["pid"], *kernel.descendants(entry["pid"]))]
        living = [known for known in marked if known is not None and "--grace" not in known.command]
        if entry["name"] == fault.child:
            return next((known for known in living if any(fault.word in word for word in known.command)), None)
    return None


def stored_crawls(database_url: str) -> set[int]:
    with psycopg.connect(database_url) as database:
        return {number for (number,) in database.execute("SELECT id FROM monitor_crawl").fetchall()}
