"""A port that was asked for is taken or refused; one that nobody asked for may change, and that is said."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.launch import ports
from swarm.errors import LocalError
from tests.launch.conftest import LIMIT_S, Start


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_that_was_asked_for_is_refused(taken: int) -> None:
    with pytest.raises(LocalError, match=f"Port {taken} is taken"):
        ports.site_port(taken)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(LocalError, match="from 1 to 65535"):
        ports.site_port(port)


def test_a_free_port_that_was_asked_for_is_used() -> None:
    port = ports.free_port()
    assert ports.site_port(port) == port


def test_no_outgoing_connection_takes_a_free_port_before_its_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "PASSING", said)
    said.write_text("12000\t60999\n")
    assert all(ports.FIRST_CHOSEN <= ports.free_port() < 12_000 for _ in range(50))
    for everything in ("1024\t65535\n", "", "nonsense"):
        said.write_text(everything)
        assert ports.is_free(ports.free_port())
    said.unlink()
    assert ports.is_free(ports.free_port())


def test_a_port_that_is_taken_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "ip_local_port_range"
    said.write_text("12000\t60999\n")
    monkeypatch.setattr(ports, "PASSING", said)
    asked: list[int] = []

    def is_free(port: int) -> bool:
        asked.append(port)
        return len(asked) == 3

    monkeypatch.setattr(ports, "is_free", is_free)
    assert ports.free_port() == asked[2]


def test_another_port_than_the_default_is_chosen_and_named(
    taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ports, "DEFAULT_SITE_PORT", taken)
    port = ports.site_port(None)
    assert ports.is_free(port)
    assert capsys.readouterr().out == f"Port {taken} is taken; the site uses port {port} instead. Choose one with --port.\n"


def test_the_gateway_moves_out_of_the_way_of_whoever_is_there_and_of_the_site(
    taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free = ports.free_port()
    monkeypatch.setattr(ports, "DEFAULT_GATEWAY_PORT", free)
    assert ports.gateway_port(site=1) == free
    assert ports.gateway_port(site=free) != free
    monkeypatch.setattr(ports, "DEFAULT_GATEWAY_PORT", taken)
    port = ports.gateway_port(site=1)
    assert ports.is_free(port)
    assert f"Port {taken} is taken; the gateway uses port {port} instead." in capsys.readouterr().out


def test_the_demo_says_so_before_it_starts_anything(start: Start, taken: int) -> None:
    launcher = start("demo", "--port", str(taken))
    launcher.line(f"Port {taken} is taken")
    assert launcher.process.wait(LIMIT_S) == 1
    assert len(launcher.lines) == 1
