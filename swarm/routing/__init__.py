"""Which servers a request passes through. Pure: servers, spans, rates and times in, a route or MissingBlocks out."""

from swarm.routing.bans import Bans
from swarm.routing.candidates import Candidate
from swarm.routing.chains import Hop, Route, choose_route, expected_s, missing
from swarm.routing.spread import spread_route
from swarm.routing.wanted import Wanted

__all__ = ["Bans", "Candidate", "Hop", "Route", "Wanted", "choose_route", "expected_s", "missing", "spread_route"]
