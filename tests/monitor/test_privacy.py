from __future__ import annotations

import pytest

from monitor.privacy import without_addresses


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("failed to dial /ip4/203.0.113.7/tcp/31330/p2p/Qm1: refused", "failed to dial /ip4/…/tcp/31330/p2p/Qm1: refused"),
        ("[/ip6/2001:db8::1/tcp/1] timeout", "[/ip6/…/tcp/1] timeout"),
        ("/dns4/home.example.org/tcp/1", "/dns4/…/tcp/1"),
        ("dial tcp 203.0.113.7:31330: i/o timeout", "dial tcp …:31330: i/o timeout"),
        ("dial tcp [2001:db8:1:2:3:4:5:6]:1: refused", "dial tcp […]:1: refused"),
        ("from 2001:db8::7 to ::1", "from … to …"),
        ("no answer within 5 s at 12:30:45", "no answer within 5 s at 12:30:45"),
        ("P2PHandlerError(\"KeyError('tiny.0')\")", "P2PHandlerError(\"KeyError('tiny.0')\")"),
    ],
)
def test_addresses_are_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    assert without_addresses(text) == shown
