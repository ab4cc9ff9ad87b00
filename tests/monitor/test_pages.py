"""Pages say what is true in words, without JavaScript, without Redis, and with a fixed number of queries."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries, views
from monitor.store import store
from swarm.snapshot import Dropped, PeerState
from tests.monitor.seeding import NOW, announced, failure, online, report, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, NOW + 12)


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: now)


def h1(html: str) -> str:
    """The first heading's text, symbol included, without since when that is so."""
    inside = html.split("<h1", 1)[1].split("</h1>", 1)[0].split(">", 1)[1]
    return " ".join(re.sub(r"<[^>]+>", "", re.sub(r'<span class="since">.*?</time>\)</span>', "", inside)).split())


def page(client: Client, path: str = "/m/tiny-hf", status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return response.content.decode()


def test_a_hole_is_in_the_heading_and_the_title(client: Client) -> None:
    seed(model(4, online("a", 0, 2), online("b", 3, 4)))
    html = page(client)
    assert h1(html) == "✕ tiny-hf cannot run: block 2 has no server"
    assert "<title>✕ tiny-hf cannot run: block 2 has no server</title>" in html
    assert "3 of 4 blocks are served." in html
    assert "Checked <time" in html and ">12 s</time> ago" in html


@pytest.mark.parametrize(
    ("servers", "heading"),
    [
        ((online("a", 0, 4), online("b", 0, 4)), "✓ tiny-hf runs; every block has two or more servers"),
        ((online("a", 0, 4), online("b", 0, 3)), "! tiny-hf runs, but block 3 has only one server"),
        ((unreachable("a", 0, 4),), "✕ tiny-hf cannot run: blocks 0–3 have no server"),
    ],
)
def test_the_heading_answers_whether_it_can_be_used(client: Client, servers: tuple, heading: str) -> None:  # type: ignore[type-arg]
    seed(model(4, *servers))
    assert h1(page(client)) == heading
    assert h1(page(client, "/")) == heading, "a swarm of one model has that model's verdict"


def test_the_model_is_called_by_its_repository_last_part(client: Client) -> None:
    seed(replace(model(1, online("a", 0, 1)), repository="https://huggingface.co/Org/Nice-7B"))
    html = page(client)
    assert h1(html).startswith("! Nice-7B runs")
    assert 'href="https://huggingface.co/Org/Nice-7B" rel="nofollow ugc noopener"' in html


def test_unread_blocks_make_the_verdict_unknown_and_not_down(client: Client) -> None:
    seed(model(3, online("a", 0, 2), unread=frozenset({2})))
    html = page(client)
    assert h1(html) == "? tiny-hf: unknown — block 2 could not be read"
    assert "? block 2 could not be read" in html and "cannot run:" not in html


def test_the_server_that_left_and_its_block_are_named(client: Client) -> None:
    seed(model(3, online("a", 0, 3), online("b", 1, 2)), at=NOW - 30)
    seed(model(3, unreachable("a", 0, 3, detail="no answer within 5 s")))
    html = page(client)
    assert f"…{peer_id('a')[-6:]}, does not answer; last seen" in html
    assert "stopped announcing, and its record ran out" in html
    assert "unreachable" in html and "it did not answer in time" in html


def test_states_have_a_symbol_a_word_and_a_reason(client: Client) -> None:
    seed(model(3, announced("j", 0, 3, PeerState.JOINING), announced("l", 0, 3, PeerState.LEAVING)))
    html = page(client)
    assert '<span aria-hidden="true">◐</span> joining' in html and "loading its blocks" in html
    assert '<span aria-hidden="true">○</span> leaving' in html and "it says that it is leaving" in html


def test_what_a_server_does_not_share_is_not_zero(client: Client) -> None:
    seed(model(1, online("a", 0, 1, throughput=None)))
    html = page(client)
    assert "not shared" in html and "0 tok/s" not in html and "0.0 tok/s" not in html


def test_names_and_versions_from_strangers_are_escaped(client: Client) -> None:
    hostile = online("a", 0, 1)
    record = replace(hostile.record, public_name='<script>alert("x")</script>', version='"><img src=x>')
    unvisited = replace(hostile, record=record, visit=replace(hostile.visit, version=None))  # type: ignore[type-var]
    seed(model(1, unvisited), dropped=(Dropped("tiny-hf.0", "'<b>'", "subkey", "<i>no peer id</i>"),))
    for html in (page(client), page(client, "/"), page(client, "/m/tiny-hf?fragment=all")):
        assert "<script>alert" not in html and "<img src=x" not in html and "<i>no peer" not in html
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in page(client)


def test_a_repository_that_is_no_web_address_is_no_link(client: Client) -> None:
    seed(replace(model(1, online("a", 0, 1)), repository="javascript:alert(1)"))
    assert 'href="javascript' not in page(client)


def test_before_the_first_check_the_page_says_so(client: Client) -> None:
    html = page(client, "/")
    assert h1(html) == "? Unknown: first check running"
    assert "Waiting for the first check; one is due every 30 s." in page(client, status=404)


def test_a_monitor_that_never_saw_anything_blames_itself(client: Client) -> None:
    store(failure(NOW, "no bootstrap peer answers"))
    html = page(client, "/")
    assert h1(html) == "? Unknown: we cannot see the swarm"
    assert "0 of 1 bootstrap peers answered; no bootstrap peer answers. This says nothing about the servers." in html


def test_an_empty_swarm_is_told_from_an_unseen_one(client: Client) -> None:
    seed()
    html = page(client, "/")
    assert "No model has been announced in this swarm yet. We reached 1 of 1 bootstrap peer." in html


def test_after_one_failed_check_the_last_one_stays_and_the_reason_is_given(client: Client) -> None:
    seed(model(1, online("a", 0, 1)))
    store(failure(NOW + 11))
    html = page(client)
    assert h1(html) == "! tiny-hf runs, but block 0 has only one server"
    assert "The last check failed (p2pd does not answer). What you see is from the one before." in html


def test_a_stale_page_says_unknown_and_what_it_was(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(2, online("a", 0, 2), online("b", 0, 2)))
    store(failure(NOW + 30))
    at(monkeypatch, NOW + 7 * 60)
    html = page(client)
    assert h1(html) == "? tiny-hf: unknown — ran 7 min ago"
    assert "Last check 7 min ago (expected every 30 s). Servers may have come or gone since." in html
    assert "No downtime is counted." in html and 'class="cells stale"' in html
    assert "next in" not in html
    assert h1(page(client, "/")) == "? tiny-hf: unknown — ran 7 min ago"


def test_a_stale_page_speaks_of_the_past_and_asks_nobody_for_anything(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(4, online("a", 0, 2), unreachable("u", 2, 4)))
    fresh = page(client)
    assert ">serve blocks 2–3</a>" in fresh and "Nothing gets through blocks 2–3" in fresh and "when last checked" not in fresh
    at(monkeypatch, NOW + 5_000)
    html = page(client)
    gaps = html.split('id="h-gaps"')[1].split("</section>")[0]
    assert "Blocks that had no server, or only one, when last checked, 1 h ago" in gaps and "/connect" not in gaps
    assert "✕ no server online, block 2, when last checked" in html and "model cannot run" not in html
    assert "When last checked: Nothing got through blocks 2–3." in html and "Nothing gets through" not in html
    for heading in ("Servers online per block", "Servers, from first block to last", "Servers (2)"):
        assert f"{heading}, when last checked, 1 h ago</h2>" in html
    assert "1 server online when last checked" in page(client, "/")
    assert "Unknown — when last checked, 1 h ago: online, serving blocks 0–1" in page(client, f"/p/{peer_id('a')}")


def test_why_a_server_is_missing_names_first_what_could_not_be_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(4, online("a", 0, 2)))
    for path in ("/", "/m/tiny-hf"):
        assert "a server that is not listed has not announced itself here" in page(client, path)
    seed(model(4, online("a", 0, 2), unread=frozenset({2, 3})), at=NOW + 1)
    unread = "What stands under blocks 2–3 of tiny-hf could not be read: it may be there."
    for path in ("/", "/m/tiny-hf"):
        html = page(client, path)
        assert f"Why is my server missing? {unread} No record was left out" in html and "has not announced itself" not in html
    bad = Dropped("tiny-hf.0", "x", "throughput", "it is nan")
    seed(model(4, online("a", 0, 2), unread=frozenset({2, 3})), at=NOW + 2, dropped=(bad,))
    assert f"Why is my server missing? {unread} 1 record was left out" in page(client)
    at(monkeypatch, NOW + 5_000)
    assert "Nobody sees the swarm now: it may have come since." in page(client)


def test_nobody_is_asked_to_serve_what_could_not_be_read(client: Client) -> None:
    seed(model(4, online("a", 0, 2), unread=frozenset({2, 3})))
    gaps = page(client).split('id="h-gaps"')[1].split("</section>")[0]
    assert "serve blocks 0–1" in gaps and "serve blocks 2–3" not in gaps and "not read" in gaps


def test_a_wrong_prefix_gets_the_right_ones(client: Client) -> None:
    seed(model(1, online("a", 0, 1)))
    html = page(client, "/m/tiny", status=404)
    assert h1(html).endswith("No servers for prefix tiny") and '<a href="/m/tiny-hf">tiny-hf</a> (1 server)' in html


def test_records_left_out_are_listed_with_reasons(client: Client) -> None:
    dropped = (
        Dropped("tiny-hf.0", "'Qm1'", "throughput", "throughput is 'nan'"),
        Dropped("other.0", "'x'", "subkey", "no peer"),
    )
    seed(model(1, online("a", 0, 1)), dropped=dropped)
    html = page(client)
    assert "Why is my server missing? 1 record was left out" in html and "throughput is &#x27;nan&#x27;" in html
    assert "2 records were left out" in page(client, "/")


def test_the_number_of_queries_does_not_depend_on_the_size_of_the_swarm(client: Client, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
    seed(model(4, online("a", 0, 4)))
    # A savepoint and its release, the last crawl, the last success and whether it still is, models, servers, rates (probes,
    # clients, answers, canaries), days; who is hidden, the staff's rulings and banners; the leases of the one model; and its
    # last day, with its number: those two and the days at most twice a minute.
    with django_assert_num_queries(18):
        page(client)
    with django_assert_num_queries(15):
        page(client)
    many = [online(f"s{n}", n % 100, n % 100 + 20) for n in range(150)]
    store(report(NOW + 5, replace(model(120, *sorted(many, key=lambda s: (s.span, s.peer_id))), prefix="tiny-hf")))
    with django_assert_num_queries(18):
        page(client)
    # Without that model's leases and its last day; with those that carry the swarm, open incidents, and promised spans.
    with django_assert_num_queries(17):
        page(client, "/")


def test_pages_do_without_redis(client: Client, settings) -> None:  # type: ignore[no-untyped-def]
    seed(model(1, online("a", 0, 1)))
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    assert page(client) and page(client, "/")
    body = page(client, "/readyz", status=503)
    assert "[+]db ok" in body and "[-]redis does not answer" in body


def test_readiness_knows_the_age_of_the_last_success(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views.time, "time", lambda: NOW + 12)
    assert "[-]crawl none has succeeded yet" in page(client, "/readyz", status=503)
    seed(model(1))
    assert page(client, "/readyz") == "[+]db ok\n[+]redis ok\n[+]crawl ok\n"
    store(failure(NOW + 80))
    monkeypatch.setattr(views.time, "time", lambda: NOW + 91)
    assert "[-]crawl last success 1 min ago" in page(client, "/readyz", status=503)
    assert page(client, "/livez") == "ok\n"


def test_pages_allow_nothing_inline_and_nothing_foreign(client: Client) -> None:
    seed(model(1, online("a", 0, 1)))
    response = client.get("/m/tiny-hf")
    policy = response.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    html = response.content.decode()
    assert "<style" not in html and " style=" not in html and "onclick" not in html
