"""THE PLANNER: where should a server serve? Pure, deterministic, and every decision carries its reason.

One planner, two callers: the coordinator calls it on the stored snapshot with the open leases as promises, a block server on
its own view of the DHT without any when the coordinator does not answer. On the same snapshot without promises both come to
the same answer.

Rule 1: a hole is a block that nobody serves, loads or has promised to serve. A block that could not be read is no hole.
Rule 2: nobody leaves a block that has no other server online, not even while the replacement loads.
Rule 3: the answer does not depend on the order of records: ties are settled by span, then by peer id.
Rule 4: holes come before redundancy, redundancy before throughput; for throughput nobody lowers the bottleneck.

    decisions   what is asked and answered        words      the sentences
    holders     the plan that all rules judge     objective  what is minimised
    arrivals    repair    chains    balance       the rules, each alone
    planning    all of them for one model         fleet      several models
"""

from swarm.placement.arrivals import Pace, choose_span
from swarm.placement.balance import COOL_DOWN_S, MIN_AGE_S
from swarm.placement.chains import mend
from swarm.placement.decisions import Advice, Circumstances, Move, Placement, Promise, urgency_of
from swarm.placement.fleet import Choice, Demand, Transfer, choose_model, transfers
from swarm.placement.holders import find_holes, without
from swarm.placement.planning import advise, plan, still_useful
from swarm.placement.repair import repair

__all__ = [
    "COOL_DOWN_S",
    "MIN_AGE_S",
    "Advice",
    "Choice",
    "Circumstances",
    "Demand",
    "Move",
    "Pace",
    "Placement",
    "Promise",
    "Transfer",
    "advise",
    "choose_model",
    "choose_span",
    "find_holes",
    "mend",
    "plan",
    "repair",
    "still_useful",
    "transfers",
    "urgency_of",
    "without",
]
