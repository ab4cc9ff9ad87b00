"""Which servers a request passes through. Pure: servers, spans, rates and times in, a route or MissingBlocks out."""

from swarm.routing.bans import Bans
from swarm.routing.chains import Candidate, Hop, Route, choose_route, missing
from swarm.routing.wanted import Wanted

__all__ = ["Bans", "Candidate", "Hop", "Route", "Wanted", "choose_route", "missing"]
