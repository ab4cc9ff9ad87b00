"""A Redis that takes connections and answers nothing: whoever asks it goes on without it, and finds it again afterwards.

With a Valkey of its own, which is stopped by a signal: nothing that refuses to connect would show the fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from channels.layers import get_channel_layer
from django.conf import settings as site
from redis import Connection, Redis
from redis.exceptions import ConnectionError as NotReached
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as NoAnswer

from coordinator.launch.binaries import valkey_program
from coordinator.launch.ports import free_port
from monitor import brief_cache
from monitor.live import group_of
from tests.tabs import Tab

ROOT = Path(__file__).parents[2]
LONG_S = 180
"""For a process that takes a few seconds; one that waits for the frozen Redis never ends."""

ASKS = """
import django
django.setup()
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from coordinator.celery import app
from coordinator.signatures import CannotCheck, new_nonce
from monitor import limits, live, telling
limits.count(limits.READS_OF_AN_ADDRESS, "192.0.2.1")
print("read is answered")
live.request_push("main")
print("crawl goes on")
assert telling.heard("main", 0.0) is None
print("page without progress")
try:
    new_nonce()
except CannotCheck:
    print("no signature is checked")
for retry in (False, True):
    try:
        app.send_task("monitor.tasks.push", args=["main"], retry=retry, ignore_result=True)
    except (OperationalError, RedisError):
        print("no task is sent")
"""


class Frozen:
    """A Valkey that can be stopped and let go on."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process, self.url = process, url

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        # The signal was sent; it has arrived once the kernel says so.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Frozen]:
    port = free_port()
    program = valkey_program(os.environ, tmp_path, None)
    command = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        _await(url)
        yield Frozen(process, url)
    finally:
        process.kill()  # also where it is stopped
        process.wait()


def _await(url: str) -> None:
    ends_at = time.monotonic() + LONG_S
    with Redis.from_url(url, socket_timeout=LONG_S) as client:
        while time.monotonic() < ends_at:
            with contextlib.suppress(RedisError):
                if client.ping():
                    return
            time.sleep(0.05)
    raise AssertionError("Valkey does not start")


@pytest.mark.slow
def test_nobody_waits_for_a_redis_that_does_not_answer(valkey: Frozen) -> None:
    valkey.freeze()
    env = {**os.environ, "REDIS_URL": valkey.url, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "coordinator.settings"}
    asked = subprocess.run([sys.executable, "-c", ASKS], env=env, cwd=ROOT, timeout=LONG_S, capture_output=True, text=True)
    told = ["read is answered", "crawl goes on", "page without progress", "no signature is checked"]
    assert asked.stdout.splitlines() == [*told, "no task is sent", "no task is sent"], asked.stderr


@pytest.mark.slow
def test_a_redis_that_does_not_answer_is_waited_for_once_in_a_while(valkey: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(brief_cache, "monotonic", lambda: now)
    sent: list[str] = []
    send = Connection.send_command

    def noted(connection: Connection, *words: Any, **options: Any) -> None:
        sent.append(words[0])
        send(connection, *words, **options)

    def cache() -> brief_cache.BriefCache:
        """Another thread has another one."""
        return brief_cache.BriefCache(valkey.url, site.CACHES["default"])

    first, second = cache(), cache()
    first.set("a", 1)
    assert second.get("a") == 1
    monkeypatch.setattr(Connection, "send_command", noted)
    valkey.freeze()
    for one in (first, second, first, second):
        with pytest.raises(NoAnswer):
            one.get("a")
    assert sent == ["GET"], "asked once, by one of them"
    valkey.thaw()
    now += brief_cache.NOT_ASKED_FOR_S
    assert (first.get("a"), second.get("a")) == (1, 1)


def test_a_redis_that_refuses_is_asked_again_at_once() -> None:
    """To be refused costs nothing, and it may be back in a moment."""
    away = brief_cache.BriefCache(f"redis://127.0.0.1:{free_port()}/0", {})
    for _ in range(2):
        with pytest.raises(NotReached, match="refused"):
            away.get("a")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
async def test_an_open_page_outlives_a_quiet_while_and_a_frozen_redis(valkey: Frozen, settings) -> None:  # type: ignore[no-untyped-def]
    patience_s = 2.0  # of commands that are answered, also on a busy machine
    layers: Any = site.CHANNEL_LAYERS
    (host,) = layers["default"]["CONFIG"]["hosts"]
    assert host["socket_timeout"] == site.REDIS_PATIENCE_S
    host = {**host, "address": valkey.url, "socket_timeout": patience_s}
    settings.CHANNEL_LAYERS = {"default": {**layers["default"], "CONFIG": {"hosts": [host]}}}
    tab = Tab("/ws/overview")
    assert await tab.connect()
    # Longer than a command may take: what listens must not be taken for it.
    assert await tab.nothing(1.5 * patience_s)
    await _say("first")
    assert json.loads(await tab.text()) == "first"
    valkey.freeze()
    with pytest.raises(RedisError):
        await _say("lost or late")
    assert await tab.nothing(1.5 * patience_s)
    valkey.thaw()
    await _say("second")
    said = [json.loads(await tab.text())]
    # What was said to the frozen one may have reached it all the same.
    if said == ["lost or late"]:
        said.append(json.loads(await tab.text()))
    assert said[-1] == "second"
    await tab.disconnect()


async def _say(words: str) -> None:
    layer = get_channel_layer()
    assert layer is not None
    await layer.group_send(group_of("overview"), {"type": "page.changed", "text": json.dumps(words)})
