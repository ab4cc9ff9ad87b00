"""What proves that a webhook comes from us: HMAC-SHA256 over the moment and the body (docs/integrations.md)."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE = "Sepal-Signature"
TIMESTAMP = "Sepal-Timestamp"
DELIVERY = "Sepal-Delivery"

TOLERANCE_S = 300
"""How old a message may be for its receiver: longer than any attempt, too short for a replay to be worth it."""


def signature(key: str, timestamp: int, body: bytes) -> str:
    """`v1=` names the scheme, so that there can be another."""
    return "v1=" + hmac.new(key.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()
