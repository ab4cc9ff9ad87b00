"""From a commit to the message at every open socket, and to the DOM of one page; and what a socket costs in memory.

The sockets are clients in a process of their own; all look at the page of 126 blocks and 466 servers.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.live.site import chromium, database, percentile, resident_bytes, web

OPENED_AT_ONCE = 50
LIMIT_S = 60.0
WATCH = """() => { window.changed = null; new MutationObserver(() => { window.changed ??= Date.now() })
  .observe(document.querySelector("#b88"), {attributes: true, attributeFilter: ["class"]}); }"""


def measure(counts: list[int], servers: list[int], rounds: int) -> dict[str, Any]:
    with database():
        from tests.showcase import seed_all

        seed_all(time.time())
        found: dict[str, Any] = {}
        for processes in servers:
            for count in counts:
                found |= _measured(count, processes, rounds)
        return found


def _measured(count: int, processes: int, rounds: int) -> dict[str, Any]:
    from tests.showcase import LARGE

    name = f"{count} sockets, {processes} web"
    with ExitStack() as stack:
        started = [stack.enter_context(web()) for _ in range(processes)]
        browser = stack.enter_context(chromium())
        page = browser.new_context(base_url=started[0][0]).new_page()
        page.goto(f"/m/{LARGE}")
        page.locator("#live-note", has_text="Live").wait_for()
        page.wait_for_load_state("networkidle")
        before = sum(resident_bytes(pid) for _, pid in started)
        ours, theirs = mp.get_context("spawn").Pipe()
        addresses = [address.replace("http", "ws") + f"/ws/m/{LARGE}" for address, _ in started]
        clients = mp.get_context("spawn").Process(target=keep_open, args=(theirs, addresses, count), daemon=True)
        clients.start()
        opened_s = ours.recv()
        per_socket = (sum(resident_bytes(pid) for _, pid in started) - before) / count
        delays: list[float] = []
        slowest: list[float] = []
        dom: list[float] = []
        for turn in range(rounds):
            committed = _change(turn, page)
            arrived = [at - committed for at in ours.recv()]
            delays += arrived
            slowest.append(max(arrived))
            page.wait_for_function("window.changed")
            dom.append(page.evaluate("window.changed") / 1000 - committed)
        clients.terminate()
    return {
        f"{name}: message median s": percentile(delays, 0.5),
        f"{name}: message p95 s": percentile(delays, 0.95),
        f"{name}: message slowest s": max(slowest),
        f"{name}: DOM median s": percentile(dom, 0.5),
        f"{name}: DOM slowest s": max(dom),
        f"{name}: memory per socket KB": per_socket / 1000,
        f"{name}: opened in s": opened_s,
    }


def _change(turn: int, page: Any) -> float:
    """Block 88 is filled or torn; when that was committed. The push is the worker's own."""
    from django.db import connection

    from monitor import live
    from monitor.store import store
    from tests.showcase import SWARM, crawled, large, middle, small

    def changed() -> float:
        now = time.time()
        store(crawled(now, large(now, holed=bool(turn % 2)), middle(now), small(now)))
        committed = time.time()
        live.push(SWARM)
        connection.close()
        return committed

    page.evaluate(WATCH)
    with ThreadPoolExecutor(1) as worker:  # as the worker does it: without Playwright's event loop
        return worker.submit(changed).result()


def keep_open(pipe: Connection, addresses: list[str], count: int) -> None:
    """The clients' process: says how long opening took, then, for each push, when it came to each socket."""
    asyncio.run(_keep_open(pipe, addresses, count))


async def _keep_open(pipe: Connection, addresses: list[str], count: int) -> None:
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.typing import Origin

    begun = time.time()
    gate = asyncio.Semaphore(OPENED_AT_ONCE)

    async def opened(number: int) -> ClientConnection:
        async with gate:
            return await connect(
                addresses[number % len(addresses)], origin=Origin("http://127.0.0.1"), ping_interval=None, open_timeout=LIMIT_S
            )

    open_sockets = await asyncio.gather(*(opened(number) for number in range(count)))
    pipe.send(time.time() - begun)

    async def arrival(socket: ClientConnection) -> float:
        text = await socket.recv()
        at = time.time()
        json.loads(text)
        return at

    while True:
        pipe.send(await asyncio.gather(*(arrival(socket) for socket in open_sockets)))
