from __future__ import annotations

import pytest

from monitor.history.models import PeerDay
from monitor.history.rollups import roll_up
from monitor.history.minutes import moment
from tests.monitor.seeding import NOW, online, seed
from tests.swarms import model

pytestmark = pytest.mark.django_db


def test_x() -> None:
    seed(model(4, online("a", 0, 4), online("b", 0, 2)), at=NOW)
    seed(model(4, online("a", 0, 4), online("b", 0, 2)), at=NOW + 30)
    seed(model(4, online("a", 0, 4)), at=NOW+60)
    roll_up(moment(NOW + 60))
    roll_up(moment(NOW + 60))
    print([(d.peer.peer_id, len(d.up), d.throughput) for d in PeerDay.objects.all()])
