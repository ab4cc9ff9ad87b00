"""How often block servers and people may ask the coordinator. The counting is the monitor's (`monitor.limits`).

A peer's own budget is touched only after its signature has been checked, so that nobody can use up another's.
"""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings

from monitor.limits import Limit, TooMany, address_of, count

__all__ = ["PLANS_OF_AN_ADDRESS", "QUESTIONS_OF_A_PEER", "REQUESTS_OF_AN_ADDRESS", "Limit", "TooMany", "address_of", "count"]

QUESTIONS_OF_A_PEER = Limit("peer", 60)
"""A server asks twice a minute and reports every ten seconds while it loads; this leaves room for restarts."""
REQUESTS_OF_AN_ADDRESS = Limit("address", 1_200)
"""A hundred servers behind one NAT, each with its nonce."""
PLANS_OF_AN_ADDRESS = Limit("plan", 120)
"""Pages and reads that make the planner work; a person clicks less often."""
REPORTS_OF_AN_ADDRESS = Limit("report", 12)
"""A client reports once a minute; this is a household, or an office."""


def digest_of(address: str) -> str:
    """Tells addresses apart without keeping them."""
    return hmac.new(settings.SECRET_KEY.encode(), address.encode(), hashlib.sha256).hexdigest()[:32]
