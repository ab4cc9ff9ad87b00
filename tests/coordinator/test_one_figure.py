"""What pages, JSON and metrics say of throughput is what the planner counts on, with somebody present who boasts."""

from __future__ import annotations

import pytest
from django.test import Client

from coordinator import hints
from monitor.hiding.models import Hidden, Kind
from monitor.rates import evidence
from monitor.rates.choose import Subject
from monitor.rates.facts import Rate
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import now
from tests.coordinator.test_people import page, read
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

BOASTED = model(
    8,
    *(server(name, 0, 4, throughput=100.0) for name in "abc"),
    *(server(name, 4, 8, throughput=30.0) for name in "ef"),
    server("boaster", 4, 8, throughput=5_000.0),
)
"""By what is reported blocks 0–3 are the slowest. All are new here, and count as usual servers at most: 65 tokens/s."""


def measured(rate: float) -> None:
    evidence.note_probe(SWARM, Subject("tiny-hf", peer_id("boaster"), Span(4, 8)), now().timestamp(), Rate(rate))


def the_hint() -> tuple[Span, str]:
    answer = hints.look(SWARM, question("new", 4), now(), "look")
    assert answer.span is not None
    return answer.span.to_span(), answer.reason


def test_the_page_s_first_card_is_the_hint_that_an_arrival_gets(client: Client) -> None:
    seen(BOASTED)
    span, reason = the_hint()
    assert span == Span(4, 8)
    (item,) = read(client, "/needed", num_blocks=4)["items"]
    first = item["cards"][0]
    assert (first["start"], first["end"], first["reason"]) == (span.start, span.end, reason)
    text = page(client, "/connect", model="tiny-hf", num_blocks="4")
    assert f"<dd>{reason}</dd>" in text.split('id="help-2"')[0]
    assert read(client, "/what-if", model="tiny-hf", add_blocks=4)["start"] == span.start


def test_the_same_where_the_boaster_is_hidden_from_view(client: Client) -> None:
    seen(BOASTED)
    measured(20.0)
    Hidden.objects.create(kind=Kind.PEER, value=peer_id("boaster"))
    span, reason = the_hint()
    first = read(client, "/needed", num_blocks=4)["items"][0]["cards"][0]
    assert (first["start"], first["reason"]) == (span.start, reason)
    assert peer_id("boaster") not in client.get("/api/v1/models").content.decode()
    assert read(client, "/models/tiny-hf")["bottleneck"]["throughput_tokens_per_second"] == 85.0


def test_promised_servers_count_with_their_believed_rate(client: Client) -> None:
    """The boaster is asked to come over: blocks 0–3 do not become fast by that."""
    seen(BOASTED)
    measured(20.0)
    stays = read(client, "/what-if", model="tiny-hf", leaves=peer_id("boaster"))
    assert "slowest block 85 → 60 tok/s" in stays["words"]


def test_the_slowest_block_is_the_one_that_the_planner_finds(client: Client) -> None:
    seen(BOASTED)
    measured(20.0)
    bottleneck = read(client, "/models/tiny-hf")["bottleneck"]
    assert bottleneck == {"block": 4, "throughput_tokens_per_second": 85.0, "reported_tokens_per_second": 5_060.0}
    blocks = read(client, "/models/tiny-hf/blocks")["items"]
    assert [block["throughput_tokens_per_second"] for block in blocks] == [195.0] * 4 + [85.0] * 4
    assert [block["reported_tokens_per_second"] for block in blocks] == [300.0] * 4 + [5_060.0] * 4
    assert "slowest block 4: 85 tok/s" in page(client, "/")
    assert "Slowest: block 4, 85 tok/s" in page(client, "/m/tiny-hf")
    metrics = client.get("/metrics").content.decode()
    assert 'swarm_block_throughput_tokens_per_second{block="4",model="tiny-hf"} 85.0' in metrics
    assert 'swarm_block_reported_throughput_tokens_per_second{block="4",model="tiny-hf"} 5060.0' in metrics


def test_where_nothing_is_missing_it_is_said_which_blocks_are_slow_as_far_as_servers_are_believed(client: Client) -> None:
    many = [server(f"s{n}", 0, 4, throughput=50.0) for n in range(7)]
    slow = [server(f"t{n}", 4, 8, throughput=20.0) for n in range(6)]
    seen(model(8, *many, *slow, server("boaster", 4, 8, throughput=9_000.0)))
    measured(20.0)
    (item,) = read(client, "/needed", num_blocks=4)["items"]
    assert "faster servers for blocks 4–7 (slowest, 145 tok/s)" in item["summary"]
    assert item["cards"][0]["reason_code"] == ReasonCode.WEAKEST and item["cards"][0]["start"] == 4


def test_a_script_that_reads_petals_state_gets_what_servers_report(client: Client) -> None:
    seen(BOASTED)
    measured(20.0)
    (report,) = client.get("/api/v1/state").json()["model_reports"]
    throughputs = {row["peer_id"]: row["span"]["server_info"]["throughput"] for row in report["server_rows"]}
    assert throughputs[peer_id("boaster")] == 5_000.0
