"""`manage.py check` says which published bootstrap address nobody outside could use, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks

from coordinator.checks import complaints, fault
from tests.swarms import peer_id

PEER = peer_id("boot")
GOOD = f"/ip4/203.0.113.5/tcp/31337/p2p/{PEER}"


def told(settings: Any, *addresses: str, url: str = "https://swarm.example") -> list[tuple[str | None, str]]:
    settings.SEPAL_URL, settings.SEPAL_JOIN_ADDRESSES = url, addresses
    return [(found.id, found.msg) for found in run_checks() if (found.id or "").startswith("sepal.")]


@pytest.mark.parametrize("host", ["127.0.0.1", "172.16.0.2", "10.1.2.3", "192.168.1.5", "169.254.0.1", "0.0.0.0"])
def test_a_public_site_warns_of_addresses_that_only_its_own_network_reaches(settings: Any, host: str) -> None:
    (found,) = told(settings, f"/ip4/1.1.1.1/tcp/31337/p2p/{PEER}", f"/ip4/{host}/tcp/31337/p2p/{PEER}")
    assert found[0] == "sepal.W001" and "SEPAL_JOIN_ADDRESSES, entry 2" in found[1] and host in found[1]
    assert not told(settings, f"/ip4/{host}/tcp/31337/p2p/{PEER}", url="http://127.0.0.1:8000"), "a site for itself may"


@pytest.mark.parametrize(
    "address",
    ["/ip6/::1/tcp/1/p2p/{}", "/ip6/fe80::1/tcp/1/p2p/{}", "/dns4/localhost/tcp/1/p2p/{}", "/dns4/box.local/tcp/1/p2p/{}"],
)
def test_other_kinds_of_near_addresses_are_warned_of_too(settings: Any, address: str) -> None:
    assert [found for found, _ in told(settings, address.format(PEER))] == ["sepal.W001"]


def test_the_list_of_swarms_is_looked_through_as_well(settings: Any) -> None:
    settings.SEPAL_SWARMS = [{**settings.SEPAL_SWARMS[0], "join_addresses": [f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}"]}]
    (found,) = told(settings)
    assert found[1].startswith(f"join_addresses of swarm {settings.SEPAL_SWARMS[0]['name']}, entry 1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (f"/ip/172.16.0.2/tcp/31337/p2p/{PEER}", "/ip is no kind of address"),
        (f"/ ip4/127.0.0.1/tcp/31337/p2p/{PEER}", "there is a space"),
        (f"{GOOD}{GOOD}", "glued together"),
        ("/ip4/203.0.113.5/tcp/31337", "the peer id is missing"),
        (f"/ip4/203.0.113/tcp/31337/p2p/{PEER}", "203.0.113 is no ip4 address"),
        (f"203.0.113.5:31337/p2p/{PEER}", "does not begin with"),
        (f"/ip4/203.0.113.5/p2p/{PEER}/tcp/1", "it ends in /1"),
        ("/ip4/203.0.113.5/p2p", "it ends in /p2p"),
        ("/ip4/203.0.113.5/tcp/31337/p2p/", "'' is no peer id"),
        ("/ip4/203.0.113.5/tcp/31337/p2p/12D3KooWx", "'12D3KooWx' is no peer id"),
        (f"/dns4//tcp/31337/p2p/{PEER}", "does not begin with"),
        ("/", "does not begin with"),
    ],
)
def test_what_is_no_address_is_told_with_the_faulty_part(address: str, words: str) -> None:
    (found,) = complaints("X", (address,), public=False)
    assert found.id == "sepal.W002" and words in found.msg


@pytest.mark.parametrize(
    "address", [GOOD, f"/dns4/boot.example/tcp/31337/p2p/{PEER}", f"{GOOD}/p2p-circuit/p2p/{peer_id('behind')}"]
)
def test_a_good_address_is_let_be(address: str) -> None:
    assert fault(address) == ""
