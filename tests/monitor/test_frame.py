"""The frame around every page: theme without scripts, the JSON of the page, compressed, light, and nothing foreign."""

from __future__ import annotations

import gzip
import random
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from django.test import Client

from monitor import live, queries
from monitor.kept import KEPT_AT_MOST, kept
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model, peer_id

MAX_HTML, MAX_ELEMENTS, MAX_FIRST_VIEW = 100_000, 2_500, 60_000
"""What 126 blocks and 500 servers may weigh: health.petals.dev's page has 1,684 KB and 66,264 elements for 466 servers."""

GZIP = {"Accept-Encoding": "gzip"}


class Elements(HTMLParser):
    count = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.count += 1


def elements(html: str) -> int:
    parser = Elements()
    parser.feed(html)
    return parser.count


@pytest.mark.django_db
def test_the_theme_is_chosen_without_scripts_and_leads_back(client: Client) -> None:
    assert "data-theme" not in client.get("/").content.decode()
    chosen = client.get("/theme?to=dark&back=/search?q=1")
    assert (chosen.status_code, chosen["Location"]) == (302, "/search?q=1")
    html = client.get("/").content.decode()
    assert '<html lang="en" data-theme="dark">' in html and 'value="dark" aria-pressed="true"' in html
    client.get("/theme?to=system")
    assert "data-theme" not in client.get("/").content.decode()


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "\\\\evil.example", "javascript:alert(1)"])
def test_the_theme_leads_to_no_other_site(client: Client, back: str) -> None:
    response = client.get("/theme", {"to": "purple", "back": back})
    assert response["Location"] == "/" and not response.cookies


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "json"),
    [
        ("/", "/api/v1/models"),
        ("/m/tiny-hf", "/api/v1/models/tiny-hf"),
        (f"/p/{peer_id('a')}", f"/api/v1/peers/{peer_id('a')}/uptime"),
        ("/incidents", "/api/v1/incidents"),
    ],
)
def test_every_page_names_its_json_and_has_one(client: Client, path: str, json: str) -> None:
    seed(model(2, online("a", 0, 2)))
    from monitor.history import rollups
    from monitor.history.minutes import moment

    rollups.roll_up(moment(NOW))
    assert f'<a href="{json}">This page as JSON</a>' in client.get(path).content.decode()
    assert client.get(json).status_code in (200, 404 if "/peers/" in json else 200)


def large(servers: int = 500) -> None:
    chance = random.Random(1)
    made = []
    for number in range(servers):
        length = min(24, 1 + int(chance.expovariate(1 / 9)))
        start = chance.randrange(0, 126 - length + 1)
        who = online(f"server {number}", start, start + length, throughput=chance.uniform(10, 4_000))
        made.append(replace(who, record=replace(who.record, cache_tokens_left=chance.randrange(10**6))))
    seed(model(126, *sorted(made, key=lambda s: (s.span, s.peer_id))))


@pytest.mark.django_db
def test_five_hundred_servers_weigh_little(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    large()
    html = client.get("/m/tiny-hf").content.decode()
    assert len(html.encode()) <= MAX_HTML
    assert elements(html) <= MAX_ELEMENTS
    assert len(__import__("json").dumps(live.changes(live.render("m/tiny-hf", queries.watch(SWARM)), {}))) <= 20_000
    weights = {"page": len(client.get("/m/tiny-hf", headers=GZIP).content)}
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', html):
        response = client.get(address, headers=GZIP)
        body = b"".join(response.streaming_content) if response.streaming else response.content
        weights[address] = len(body)
    assert len(weights) > 4 and sum(weights.values()) <= MAX_FIRST_VIEW, weights


@pytest.mark.django_db
def test_pages_and_files_come_compressed_where_that_is_understood(client: Client) -> None:
    seed(model(2, online("a", 0, 2)))
    plain, packed = client.get("/m/tiny-hf"), client.get("/m/tiny-hf", headers=GZIP)
    assert (
        "Content-Encoding" not in plain and packed["Content-Encoding"] == "gzip" and plain["Vary"] == "Accept-Encoding, Cookie"
    )
    assert b"<h1" in gzip.decompress(packed.content)
    style = client.get("/static/monitor/sepal.css", headers=GZIP)
    again = client.get("/static/monitor/sepal.css", headers=GZIP)
    assert gzip.decompress(style.content) == gzip.decompress(again.content) and b"--page" in gzip.decompress(style.content)
    assert b"--page" in b"".join(client.get("/static/monitor/sepal.css"))
    assert "Content-Encoding" not in client.get("/api/v1/models", headers=GZIP), "the API's tags stand for its bytes"


def test_what_is_kept_is_asked_once_and_never_grows_without_end() -> None:
    asked: list[int] = []

    def ask(number: int) -> int:
        asked.append(number)
        return number

    assert kept("one", lambda: ask(1)) == kept("one", lambda: ask(2)) == 1 and asked == [1]
    assert kept("soon", lambda: ask(3), for_s=0.0) == 3 and kept("soon", lambda: ask(4), for_s=0.0) == 4
    for number in range(KEPT_AT_MOST):
        kept(number, lambda number=number: ask(number))  # type: ignore[misc]
    assert kept("one", lambda: ask(5)) == 5, "the oldest made room"
