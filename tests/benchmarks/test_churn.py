"""The plan of the recorder of churn, and what it writes down."""

from __future__ import annotations

import pytest

from benchmarks.churn.lines import nameless
from benchmarks.churn.plan import BOOTSTRAPS, MOST_AWAY, SERVERS, Act, plan
from tests.swarms import peer_id

GOES = (Act.KILL, Act.STOP, Act.FREEZE)
COMES = (Act.START, Act.THAW)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_plan_in_which_whoever_goes_comes_back(seed: int) -> None:
    steps = plan(seed, 1_000.0)
    assert steps == plan(seed, 1_000.0) != plan(seed + 1, 1_000.0)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    away: set[str] = set()
    for step in steps:
        if step.act in GOES:
            assert step.who not in away
            away.add(step.who)
        elif step.act in COMES:
            away.remove(step.who)
        assert len(away - set(BOOTSTRAPS)) <= 2 * MOST_AWAY - 1
    assert {step.who for step in steps if step.act is Act.KILL} >= {*BOOTSTRAPS}
    assert len({step.who for step in steps if step.act in GOES} & set(SERVERS)) == len(SERVERS)


def test_a_reason_is_written_down_without_addresses_and_peers() -> None:
    boot = f"/ip4/127.0.0.1/tcp/4001/p2p/{peer_id('boot')}"
    told = nameless(f"no bootstrap peer answers ({boot}, {boot}): {peer_id('a')} at ::1 said no; see /var/log/x.log")
    assert not any(word in told for word in ("127.0.0.1", "4001", "12D3", "::1", "log/x"))
    assert told.startswith("no bootstrap peer answers (") and told.endswith("said no; see (address)")
