"""More servers than Postgres has connections ask the real web process at one moment."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from blockserver.serving.hint_client import Busy, HintClient
from tests.coordinator.seeding import seen
from tests.coordinator.signing import signed_server, signer
from tests.coordinator.test_hint_client import question
from tests.sites import site_process
from tests.swarms import model

CROWD = 120
"""Postgres takes 100."""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_each_of_a_crowd_is_answered_or_told_to_come_back_and_pages_go_on() -> None:
    names = [f"p{number}" for number in range(CROWD)]
    seen(model(30, *(signed_server(name, 0, 12) for name in names)))
    with site_process(SEPAL_TRUSTED_PROXIES="127.0.0.1") as site:
        came, pages = asyncio.run(all_at_once(site.address, names))
    assert set(came) <= {"answered", "told to come back"} and came["answered"] > 0
    assert set(pages) == {httpx.codes.OK}
    assert not [line for line in site.said if "OperationalError" in line]


async def all_at_once(address: str, names: list[str]) -> tuple[Counter[str], Counter[int]]:
    came: Counter[str] = Counter()
    pages: Counter[int] = Counter()
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", timeout=60.0, limits=httpx.Limits()) as http:
        clients = {}
        for name in names:
            clients[name] = HintClient(address, signer(name))
            await clients[name]._http.aclose()
            # Nobody gives up: what is tested is what the site does.
            clients[name]._http = http
            clients[name]._nonce = await clients[name]._fetch_nonce()

        async def ask(name: str) -> None:
            try:
                await clients[name].ask(question().model_copy(update={"peer": signer(name).peer_id}))
                came["answered"] += 1
            except Busy:
                came["told to come back"] += 1

        crowd = [asyncio.create_task(ask(name)) for name in names]
        while not all(task.done() for task in crowd):
            pages[(await http.get("/needed")).status_code] += 1
        await asyncio.gather(*crowd)
    return came, pages
