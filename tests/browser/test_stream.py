"""The stream over real connections to a real web server; and how places become free when those break."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

import pytest

from monitor.feeds.slots import FOR_ONE
from tests.monitor.seeding import online, seed
from tests.swarms import model

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def opened(site: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(urlsplit(site).netloc, timeout=60)
    connection.request("GET", "/api/v1/events")
    return connection, connection.getresponse()


def test_listeners_get_the_state_at_once_and_a_broken_connection_makes_room_for_another(site: str) -> None:
    seed(model(2, online("a", 0, 2, at=time.time())), at=time.time())
    held = [opened(site) for _ in range(FOR_ONE)]
    for _, answer in held:
        assert answer.status == 200
        said = [answer.readline().decode() for _ in range(5)]
        assert said[0] == "retry: 5000\n" and said[3] == "event: snapshot\n" and '"verdict":"thin"' in said[4]
    refused, answer = opened(site)
    assert answer.status == 429 and answer.headers["Content-Type"] == "application/problem+json"
    refused.close()
    held[0][1].close()
    held[0][0].close()
    deadline = time.monotonic() + 60
    while True:
        another, answer = opened(site)
        if answer.status == 200 or time.monotonic() > deadline:
            break
        another.close()
    assert answer.status == 200, "the place of a connection that broke stays taken"
    for connection, _ in [*held[1:], (another, answer)]:
        connection.close()
