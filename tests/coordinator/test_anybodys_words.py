"""Whatever servers say of themselves: while a block has no server and an honest one can be spared, somebody is asked to go."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coordinator import followers, hints
from coordinator.models import Follower, Lease
from swarm.placement import find_holes, mend
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, HintRequest, LeaseStep, ReasonCode, SpanDocument
from swarm.wire.keys import MAX_BLOCKS
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_fleet import BOTH, POOR, RICH
from tests.coordinator.test_hints import HOLED, holed, now
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

OTHERS = tuple(s for s in HOLED.servers if s.record.public_name != "d")
BLOCKS = 10
NAMES = "abcdefgh"


def step(name: str, current: Span) -> LeaseStep:
    return LeaseStep(peer=peer_id(name), current=SpanDocument.of(current))


def asks(name: str, serving: Span | None, **words: object) -> HintAnswer:
    asked = question(name, len(serving) if serving else 4, serving).model_copy(update=words)
    return hints.answer(SWARM, asked, now())


@pytest.mark.parametrize("num_blocks", [1, 5, 11, 13, MAX_BLOCKS])
def test_a_server_that_tells_another_length_than_it_serves_keeps_nobody_from_being_asked(num_blocks: int) -> None:
    """To all others it would be the one to move; to itself, with another length, somebody else."""
    holed()
    answers = [asks("d", Span(0, 12), num_blocks=num_blocks, num_blocks_max=12)]
    answers += [asks(s.record.public_name or "", s.span) for s in OTHERS]
    assert sum(answer.lease is not None for answer in answers) == 1


@pytest.mark.parametrize("current", [None, Span(0, 6), Span(3, 12), Span(0, 13), Span(20, 28)])
def test_one_that_says_that_it_is_elsewhere_than_it_was_seen_keeps_nobody_either(current: Span | None) -> None:
    """As often as it likes: what it said a moment ago counts for others only where it would be asked to leave from there."""
    holed()
    said = asks("d", current) if current else None
    assert said is None or said.lease is None
    if current is None:
        followers.note_heartbeat(SWARM, question("d", serving=None), now())
    Follower.objects.update(claim_counts=False)
    answer = asks("a", Span(0, 12))
    assert answer.lease is not None and answer.lease.to_span().covers(Span(12, 18))


def test_a_server_that_has_moved_by_itself_is_not_sent_on_from_where_it_was() -> None:
    swarm = model(12, server("a", 0, 4), server("b", 0, 4), server("p", 0, 4, throughput=1.0), server("q", 4, 8))
    for s in swarm.servers:
        followers.note_heartbeat(SWARM, question(s.record.public_name or "", 4, s.span), now())
    seen(swarm)
    answer = asks("p", Span(4, 8))
    assert answer.lease is None
    assert "nobody is moved on before the next crawl sees it" in answer.reason
    assert any(asks(name, Span(0, 4)).lease for name in "ab"), "the hole does not wait for that crawl"


def test_a_site_with_many_servers_on_their_way_is_still_asked_to_spare_one_that_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others stay because it is the one to move; so no number of leases of its neighbours keeps it from being asked."""
    monkeypatch.setattr(hints, "OPEN_LEASES_OF_AN_ADDRESS", 0)
    holed()
    assert hints.answer(SWARM, question("new", 4), now(), "here").lease is None
    assert hints.answer(SWARM, question("d", serving=Span(0, 12)), now(), "here").lease is not None


def test_who_leaves_a_lease_by_its_own_word_has_had_its_turn() -> None:
    """To be offered a block, to take the offer back and to be offered it again would keep it from all others for ever."""
    holed()
    first = asks("d", Span(0, 12))
    assert first.lease is not None
    reply = hints.accept(SWARM, Lease.objects.get(), step("d", Span(0, 6)), now())
    assert (reply.outcome, "does not serve" in reply.reason) == ("stale", True)
    assert asks("d", Span(0, 12)).reason_code is ReasonCode.ASKED_NOT_TO
    assert asks("a", Span(0, 12)).lease is not None


def test_nor_does_who_offers_another_model_only_until_it_is_asked_to_change_to_it() -> None:
    seen(RICH, POOR)
    assert hints.answer(SWARM, question("r0", 8, Span(0, 8), "rich", BOTH), now()).lease is not None
    assert hints.answer(SWARM, question("r0", 8, Span(0, 8), "rich"), now()).lease is None
    again = hints.answer(SWARM, question("r0", 8, Span(0, 8), "rich", BOTH), now())
    assert again.reason_code is ReasonCode.ASKED_NOT_TO
    assert hints.answer(SWARM, question("r1", 8, Span(0, 8), "rich", BOTH), now()).lease is not None


def words(draw: random.Random, name: str, span: Span, holes: frozenset[int]) -> HintRequest:
    """Whatever the protocol takes of a server that was seen with `span`, but that it is where nobody is: such a claim stands
    until the next crawl has looked there."""
    places = [Span(a, b) for a in range(BLOCKS) for b in range(a + 1, BLOCKS + 3) if not holes & set(range(a, b))]
    somewhere = draw.choice(places)
    return question(
        name,
        draw.choice([1, 2, len(span), BLOCKS, MAX_BLOCKS]),
        draw.choice([span, span, span, somewhere, None]),
        also={"other": draw.randint(1, 9)} if draw.random() < 0.3 else None,
        sessions=draw.choice([0, 0, 5]),
    ).model_copy(
        update={
            "num_blocks": draw.choice([1, 3, len(span), MAX_BLOCKS]),
            "est_load_s": draw.choice([None, 0.001, 86_400.0]),
            "forward_rps": draw.choice([None, 1e-6, 1e9]),
            "on_disk": (SpanDocument.of(somewhere),) if draw.random() < 0.3 else (),
        }
    )


def swarm_with_something_to_spare(draw: random.Random) -> tuple[Model, frozenset[str]]:
    """It has a hole, and one of its honest servers can be sent there, though not one that the planner would ask first."""
    while True:
        spans = {name: Span(start := draw.randrange(BLOCKS - 3), start + draw.randint(1, 4)) for name in NAMES}
        swarm = model(BLOCKS, *(server(name, s.start, s.end, throughput=draw.uniform(1, 20)) for name, s in spans.items()))
        first = {move.peer_id for move in mend(swarm)}
        honest = frozenset(name for name in NAMES if draw.random() < 0.9 and peer_id(name) not in first)
        if mend(swarm, movable={peer_id(name) for name in honest}):
            return swarm, honest


@pytest.mark.parametrize("seed", range(40))
def test_somebody_is_asked_whatever_others_say(seed: int) -> None:
    """Everybody has told the truth before, and then asks twice; who is not honest sticks to other words."""
    draw = random.Random(seed)
    swarm, honest = swarm_with_something_to_spare(draw)
    holes = frozenset(block for hole in find_holes(swarm) for block in hole)
    spans = {s.record.public_name or "": s.span for s in swarm.servers}
    truth = {name: question(name, len(span), span) for name, span in spans.items()}
    lies = {name: words(draw, name, span, holes) for name, span in spans.items() if name not in honest}
    for said in truth.values():
        followers.note_heartbeat(SWARM, said, now())
    seen(swarm, replace(model(9, server("z", 0, 9), server("y", 0, 9)), prefix="other"))
    for said in [*draw.sample([*(truth | lies).values()], len(NAMES)), *(truth | lies).values()]:
        hints.answer(SWARM, said, now())
    assert holes & {block for lease in Lease.objects.open() for block in lease.span}
