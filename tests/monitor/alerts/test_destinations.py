"""Strangers choose where we send to: nothing but public https is reached, whatever a name resolves to."""

from __future__ import annotations

import ipaddress

import pytest

from monitor.alerts.destinations import BadDestination, is_public, public_address, read
from monitor.alerts.outbox import DeliveryFailed


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/x",
        "ftp://hooks.example/x",
        "https://user:word@hooks.example/",
        "https://hooks.example:25/",
        "https://hooks.example:99999/",
        "https:///x",
        "https://hooks.example/a b",
        "https://hooks.example/\r\nX: y",
        "https://höoks.example/",
        "https://hooks.example/" + "x" * 500,
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
        "javascript:alert(1)",
        "",
    ],
)
def test_what_is_no_public_https_address_is_refused_in_words(url: str) -> None:
    with pytest.raises(BadDestination) as refused:
        read(url, private=False)
    assert str(refused.value).endswith(".")


def test_a_usual_address_is_taken_apart() -> None:
    found = read("https://Hooks.example/in/7?k=v", private=False)
    assert (found.host, found.port, found.target, found.authority) == ("hooks.example", 443, "/in/7?k=v", "hooks.example")
    assert read("https://hooks.example:8443", private=False).authority == "hooks.example:8443"
    assert read("http://[::1]:8080/x", private=True).authority == "[::1]:8080"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "2001:db8::1", "fec0::1",
    ],
)  # fmt: skip
def test_addresses_of_ones_own_network_are_not_public_however_they_are_wrapped(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("found", [["10.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["fe80::1%eth0"], ["nonsense"]])
async def test_a_name_with_one_private_address_is_a_trap(found: list[str]) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return found

    with pytest.raises(DeliveryFailed, match="private network") as failed:
        await public_address(read("https://trap.example/", private=False), resolve, private=False)
    assert failed.value.permanent


async def test_a_name_that_cannot_be_looked_up_is_tried_again_later() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(DeliveryFailed) as failed:
        await public_address(read("https://gone.example/", private=False), resolve, private=False)
    assert not failed.value.permanent
