"""How far a server that loads a missing block has come: said in the verdict, as far as it tells, and no further."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from coordinator.models import Lease, Phase
from monitor import extensions
from monitor.published import Loading
from monitor.queries import watch
from swarm.snapshot import PeerState
from tests.monitor.seeding import SWARM, announced, online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("loading", "left_s"), [(Loading(0.5, 100.0), 60.0), (Loading(0.75, 40.0), 40.0), (Loading(1.0, 0.0), 0.0)]
)
def test_what_is_left_is_reckoned_at_the_pace_so_far(loading: Loading, left_s: float) -> None:
    assert loading.left_s(160.0) == pytest.approx(left_s)


def test_of_a_load_that_has_hardly_begun_nothing_is_reckoned() -> None:
    assert Loading(0.01, 0.0).left_s(1_000.0) is None


def broken(client: Client, *coming: str) -> str:
    now = time.time()
    seed(model(4, online("a", 0, 3, at=now), *(announced(name, 3, 4, PeerState.JOINING, now) for name in coming)), at=now)
    return client.get("/m/tiny-hf").content.decode()


def follows(name: str, share: float, for_s: float, phase: Phase = Phase.ACCEPTED) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=for_s)
    Lease.objects.create(
        swarm=SWARM,
        prefix="tiny-hf",
        peer_id=peer_id(name),
        start=3,
        end=4,
        phase=phase,
        progress=share,
        created_at=begun,
        accepted_at=begun if phase == Phase.ACCEPTED else None,
        expires_at=begun + timedelta(hours=1),
    )


def test_the_verdict_says_how_far_the_server_is_and_about_how_long_it_takes(client: Client) -> None:
    follows("b", 0.62, 400.0)
    assert "1 server is loading block 3 (62 %, about 4 min)." in broken(client, "b")


def test_of_several_the_one_that_is_there_first_counts(client: Client) -> None:
    follows("b", 0.2, 400.0)
    follows("c", 0.6, 410.0)
    assert "2 servers are loading block 3 (the first at 60 %, about 4 min)." in broken(client, "b", "c")


def test_of_a_server_that_tells_nothing_only_is_said_that_it_loads(client: Client) -> None:
    follows("b", 0.5, 100.0, Phase.OFFERED)
    assert "1 server is loading block 3." in broken(client, "b")


def test_nobody_is_asked_while_no_server_loads(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_told", [lambda swarm: pytest.fail(f"{swarm} was asked about")])
    broken(client)
    seen = watch(SWARM).published
    assert seen is not None and seen.loading == {}
