"""Every public address of a seeded site, and nowhere an IP address, a hidden name or a peer that opted out.

The addresses are those of the URL configuration itself: one that is added is walked too, or this test says what it lacks.
"""

from __future__ import annotations

import gzip
import ipaddress
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern
from django.utils.regex_helper import normalize

from coordinator.models import Lease
from monitor.alerts.judging import judge
from monitor.alerts.mail import written
from monitor.alerts.models import Delivery, Subscription
from monitor.api.problems import CATALOGUE
from monitor.exports import making
from monitor.feeds import events
from monitor.feeds.changes import snapshot_data
from monitor.feeds.models import Event
from monitor.feeds.publish import publish
from monitor.feeds.stream import Stream
from monitor.hiding.models import Hidden
from monitor.history import rollups
from monitor.history.minutes import midnight
from monitor.history.models import Incident, RolledUp
from monitor.models import Crawl, KeptSnapshot
from monitor.queries import watch
from monitor.store import store
from swarm.snapshot import AddressState, Dropped, Model, Server
from tests.monitor.seeding import SWARM, online, report, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db(transaction=True)

GHOST = peer_id("ghost")
BAD_NAME, GHOST_NAME = "Bad Name", "Ghost Owner"
TELLTALE = (
    "dial /ip4/203.0.113.7/tcp/31330/p2p/x and /ip6/2001:db8::17/udp/1/quic failed: tcp 198.51.100.9:31330 refused, "
    f"[2001:db8:0:1:2:3:4:5]:80 too, /dns4/home.example.org/tcp/1; said {BAD_NAME}, asked {GHOST}"
)

NOT_WALKED = {
    "/api/v1/is_reachable": "tells the caller its own address, to nobody else, and dials; its texts are in test_reachability",
    "/api/v1/events": "never ends; read below",
    "/admin": "for the site's own staff",
}

# --- what must not be there


def addresses_in(text: str) -> set[str]:
    found = {m.group() for m in re.finditer(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)", text) if _is_ip(m.group())}
    for match in re.finditer(r"(?<![\w:.#])[0-9a-fA-F:]{2,39}(?![\w])", text):
        word = match.group().rstrip(":") if not match.group().endswith("::") else match.group()
        if word.count(":") >= 2 and _is_ip(word):
            found.add(word)
    return found | {m.group() for m in re.finditer(r"/(?:ip4|ip6|dns|dns4|dns6|dnsaddr)/[^/\s\"'<&…]+", text)}


def _is_ip(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def exposed(text: str) -> set[str]:
    names = {word for word in (BAD_NAME, GHOST_NAME, GHOST, GHOST[-6:]) if word.casefold() in text.casefold()}
    # ::1 is every machine's own address, and nobody's: an example in the OpenAPI document.
    return addresses_in(text) - {"::1"} | names


@pytest.mark.parametrize(
    "text",
    [
        "at 203.0.113.7.",
        "x=198.51.100.9:80",
        "from fe80::1 to",
        "[2001:db8::1]",
        "/ip4/x/tcp",
        "by bad name",
        f"…{GHOST[-6:]}",
        GHOST,
    ],
)
def test_this_test_sees_what_it_looks_for(text: str) -> None:
    assert exposed(text)


@pytest.mark.parametrize(
    "text", ["at 14:02:31 UTC", "version 2.3.0", "/ip4/…/tcp/31330", "a::before", "blocks 1:2", "2026-09-21"]
)
def test_this_test_sees_nothing_where_nothing_is(text: str) -> None:
    assert not exposed(text)


# --- a site on which everybody tries


def _speaking(server: Server, name: str, **pings: float) -> Server:
    record = replace(
        server.record,
        public_name=name,
        version="198.51.100.4",
        adapters=(f"http://203.0.113.80/{BAD_NAME}", "fine-adapter"),
        next_pings={peer_id(peer): seconds for peer, seconds in pings.items()} | {GHOST: 0.1},
    )
    visit = (
        replace(server.visit, detail=TELLTALE, addresses=("/ip4/203.0.113.7/tcp/1",), version=None) if server.visit else None
    )
    return replace(server, record=record, visit=visit, conflict=TELLTALE)


def _model(at: float, *, ghost: bool) -> Model:
    servers = [
        _speaking(online("a", 0, 2, at=at), BAD_NAME, b=0.2),
        _speaking(online("b", 0, 2, at=at), "203.0.113.9"),
        _speaking(unreachable("u", 0, 1, detail=TELLTALE, at=at), "2001:db8::99"),
    ]
    if ghost:
        servers.append(_speaking(online("ghost", 0, 4, at=at), GHOST_NAME))
    ordered = sorted(servers, key=lambda s: (s.span, s.peer_id))
    return replace(model(4, *ordered), repository="http://203.0.113.80/Bad Name/tiny", conflict=TELLTALE)


def _crawl(at: float, *, ghost: bool) -> None:
    dropped = (
        Dropped("tiny-hf.0", f"'{TELLTALE}'", "subkey", TELLTALE),
        Dropped("_petals.models", "203.0.113.5", "prefix", TELLTALE),
    )
    state = AddressState(peer_id=peer_id("boot"), address="/ip4/203.0.113.7/tcp/1", family="ip4", step="dial", detail=TELLTALE)
    crawl = replace(
        report(at, _model(at, ghost=ghost), dropped=dropped), bootstraps={peer_id("boot"): False, peer_id("c"): True}
    )
    store(replace(crawl, addresses=(state,), split=TELLTALE, confirmed=TELLTALE))


@pytest.fixture
def site(settings: Any) -> dict[str, Any]:
    """What stands in the addresses of the site."""
    settings.SEPAL_URL, settings.SEPAL_JOIN_ADDRESSES, settings.SEPAL_MAIL_FROM = (
        "https://swarm.example",
        [],
        "sepal@swarm.example",
    )
    settings.ALLOWED_HOSTS = ["testserver", "swarm.example"]
    Hidden.objects.create(kind="name", value=BAD_NAME)
    Hidden.objects.create(kind="peer", value=GHOST)
    now = time.time()
    today = datetime.fromtimestamp(now, UTC).date()
    yesterday = midnight(today).timestamp() - 3_600
    for start in (yesterday, now - 120):
        for step, ghost in enumerate((True, False, False, start != yesterday or True)):
            _crawl(start + 30 * step, ghost=ghost)
            publish(SWARM)
    _crawl(now, ghost=False)
    _crawl(now + 1, ghost=False)
    rollups.roll_up(datetime.fromtimestamp(yesterday + 600, UTC))
    RolledUp.objects.update(until=datetime.now(UTC))
    days = [today - timedelta(days=1)]
    making.make_day(days[0], datetime.now(UTC))
    mine = _subscriptions()
    for after in (2, 3):
        _crawl(now + after, ghost=False)
        judge(SWARM, now + after)
    publish(SWARM)
    return {
        "prefix": ["tiny-hf", "nobody-hf"],
        "swarm": [SWARM],
        "incident_id": [str(pk) for pk in Incident.objects.values_list("pk", flat=True)],
        "hint_id": [str(_lease().pk)],
        "crawl_id": [str(pk) for pk in Crawl.objects.values_list("pk", flat=True)],
        "snapshot_id": [str(pk) for pk in KeptSnapshot.objects.values_list("pk", flat=True)],
        "slug": [kind.slug for kind in CATALOGUE],
        "lease_id": ["4b1d6a3e-0000-4000-8000-000000000000"],
        "peer_id": [peer_id("a"), peer_id("u")],
        "peer": [peer_id("a"), peer_id("u")],
        "day": [day.isoformat() for day in days],
        "secret": [mine.secret],
    }


def _subscriptions() -> Subscription:
    common = {"swarm": SWARM, "created_at": datetime.now(UTC), "confirmed_at": datetime.now(UTC), "way": "email"}
    Subscription.objects.create(topic="redundancy", prefix="tiny-hf", target=9, address="a@mail.example", **common)
    Subscription.objects.create(topic="bootstrap", address="a@mail.example", **common)
    return Subscription.objects.create(topic="model", prefix="tiny-hf", address="a@mail.example", **common)


def _lease() -> Lease:
    inputs = {
        "observed_at": "2026-09-21T14:00:00Z", "servers": 3, "num_blocks": 4, "promises": [], "ranking": [],
        "asked": {"num_blocks_max": 2, "sessions_active": 0},
        "candidates": [{"peer_id": GHOST, "blocks": "block 1", "objection": f"…{GHOST[-6:]} has sessions"}],
    }  # fmt: skip
    now = datetime.now(UTC)
    return Lease.objects.create(
        swarm=SWARM, prefix="tiny-hf", peer_id=GHOST, start=2, end=4, phase="offered", urgency="now", reason_code="hole",
        reason=f"…{GHOST[-6:]} is the only one free", plan_version=1, created_at=now,
        expires_at=now + timedelta(minutes=1), inputs=inputs,
    )  # fmt: skip


# --- the walk


def paths(samples: dict[str, list[str]]) -> Iterator[str]:
    for route in _routes(get_resolver().url_patterns, "/"):
        if any(route.startswith(prefix) for prefix in NOT_WALKED):
            continue
        for name in set(re.findall(r"<(\w+)>", route)):
            assert name in samples, f"{route} is new: this test needs an example of {name}"
        yield from _filled(route, samples)


def _routes(patterns: list[Any], start: str) -> Iterator[str]:
    for item in patterns:
        shown = start + _template(item.pattern)
        if isinstance(item, URLResolver):
            yield from _routes(item.url_patterns, shown)
        elif isinstance(item, URLPattern):
            yield shown


def _template(pattern: Any) -> str:
    if isinstance(pattern, RoutePattern):
        return re.sub(r"<(?:\w+:)?(\w+)>", r"<\1>", str(pattern))
    template, _ = normalize(str(pattern))[0]
    return re.sub(r"%\((\w+)\)s", r"<\1>", template)


def _filled(route: str, samples: dict[str, list[str]]) -> Iterator[str]:
    names = re.findall(r"<(\w+)>", route)
    if not names:
        yield route
        return
    for value in samples[names[0]]:
        yield from _filled(route.replace(f"<{names[0]}>", value), samples)


def visited(client: Client, path: str) -> str:
    answer = client.get(path)
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[arg-type]
    if answer.get("Content-Type") == "application/gzip" and answer.status_code == 200:
        body = gzip.decompress(body)
    headers = "\n".join(f"{name}: {value}" for name, value in answer.items())
    # As a reader of JSON sees it.
    return f"{headers}\n{body.decode(errors='replace')}".replace("\\u2026", "…")


def walk(client: Client, samples: dict[str, list[str]]) -> dict[str, set[str]]:
    """By path what is exposed there. Links on pages are followed too."""
    waiting, seen, found = list(paths(samples)), set[str](), {}
    waiting += [f"{path}?fragment=1" for path in ("/", "/m/tiny-hf")] + [
        f"/?swarm={SWARM}",
        "/what-if?model=tiny-hf",
        "/connect?model=tiny-hf",
    ]
    while waiting:
        path = waiting.pop()
        if path in seen or any(path.startswith(prefix) for prefix in NOT_WALKED):
            continue
        seen.add(path)
        text = visited(client, path)
        if exposed(text):
            found[path] = exposed(text)
        waiting += [
            link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]*)', text) if not link.startswith("/static")
        ]
    assert len(seen) > 30 and "/exports" in seen and "/metrics" in seen
    return found


def test_no_public_address_exposes_anybody(site: dict[str, Any], client: Client) -> None:
    assert "tiny-hf" in visited(client, "/") and Incident.objects.filter(kind="hole").count() >= 1
    assert any(entry["peer_id"] == GHOST for row in Incident.objects.all() for entry in row.left), "there is something to hide"
    assert walk(client, site) == {}


@pytest.mark.parametrize("held", [False, True], ids=["failed", "held back"])
def test_nor_does_a_monitor_that_says_why_it_sees_nothing(site: dict[str, Any], client: Client, held: bool) -> None:
    at = time.time() + 2
    crawl = replace(report(at, _model(at, ghost=False)), bootstraps={peer_id("boot"): False})
    if held:
        store(replace(crawl, held=TELLTALE, suspicion="mass-loss"))
    else:
        store(replace(crawl, snapshot=None, failure=TELLTALE))
    assert walk(client, site) == {}


def test_nor_does_the_stream_or_what_it_keeps(site: dict[str, Any]) -> None:
    async def first_events(last: int | None) -> str:
        text = ""
        async for part in Stream(SWARM, last, lambda: None):
            text += part
            if "\ndata: " in text:
                break
        return text

    assert not exposed(async_to_sync(first_events)(None))
    stored = json.dumps(list(Event.objects.values_list("kind", "data")), ensure_ascii=False)
    assert not exposed(stored) and '"incident"' in stored and events.newest(SWARM) > 0
    assert not exposed(json.dumps(snapshot_data(watch(SWARM))))


def test_nor_do_alerts(site: dict[str, Any]) -> None:
    sent = list(Delivery.objects.select_related("subscription"))
    assert {delivery.subscription.topic for delivery in sent} >= {"model", "redundancy"}
    for delivery in sent:
        assert not exposed(json.dumps(delivery.message) + written(delivery).message().as_string())


def test_places_are_asked_of_nobody_and_told_to_nobody(site: dict[str, Any], client: Client) -> None:
    """Location is off, and there is no setting that turns it on: no output has a word for it."""
    for path in ("/api/v1/state", "/api/v1/models", "/metrics", "/exports/" + site["day"][0] + ".ndjson.gz"):
        text = visited(client, path).casefold()
        assert not re.search(r'"(lat|lon|latitude|longitude|city|region|postal|zip|isp|country|location|geo\w*)"', text), path


def test_no_answer_asks_a_visitors_browser_to_call_a_third_party(site: dict[str, Any], client: Client) -> None:
    for path in ("/", "/m/tiny-hf", "/incidents", "/alerts", "/exports", "/hints", "/connect"):
        for target in re.findall(r'(?:src|action|data-socket)="([^"]*)"', visited(client, path)):
            assert target.startswith("/") and not target.startswith("//"), (path, target)
