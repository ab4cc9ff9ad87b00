"""What other nodes write where hivemind expects ids of its own making: a wrong one costs itself, not the look-up."""

from __future__ import annotations

from hivemind.dht.routing import DHTID


def node_id_of(raw: bytes) -> DHTID | None:
    """None where these bytes are no node's id; hivemind itself ends with an AssertionError there."""
    number = int.from_bytes(raw, "big")
    return DHTID(number) if raw and DHTID.MIN <= number < DHTID.MAX else None
