"""The benchmark's network really puts hosts apart, and its figures are what was measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.distance import table
from benchmarks.distance_client import figures_of
from benchmarks.far_hosts import FarHosts

ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 5000))
print("up", flush=True)
peer, _ = server.accept()
while data := peer.recv(65536):
    peer.sendall(data)
"""
ASK = """
import socket, sys, time
started = time.monotonic()
peer = socket.create_connection((sys.argv[1], 5000))
print(time.monotonic() - started)
started = time.monotonic()
peer.sendall(b"x" * 20_000)
received = 0
while received < 20_000:
    received += len(peer.recv(65536))
print(time.monotonic() - started)
"""
can_make_networks = os.geteuid() == 0 and Path("/dev/net/tun").exists()


@pytest.mark.skipif(not can_make_networks, reason="needs root and TUN devices")
def test_a_packet_takes_its_time_from_host_to_host_and_no_network_is_shared() -> None:
    with FarHosts(3, one_way_ms=15.0) as far:
        assert far.method in ("netem", "a delay queue")
        echo = far.run(2, [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
        assert echo.stdout is not None
        assert echo.stdout.readline() == "up\n"
        asking = far.run(0, [sys.executable, "-c", ASK, far.address(2)], stdout=subprocess.PIPE, text=True)
        connected, answered = map(float, asking.communicate(timeout=20)[0].split())
        links = far.run(1, ["ip", "-o", "link"], stdout=subprocess.PIPE, text=True).communicate()[0]
    assert connected >= 0.030
    assert answered >= 0.030
    assert "eth0" not in links and "far0" in links
    assert echo.poll() is not None


def test_figures_are_medians_and_the_floor_is_the_sum_of_its_parts() -> None:
    rounds = [{"plain_s": 0.4, "push_s": 0.25, "repetitive_s": 0.25, "drafts_s": 0.05} for _ in range(3)]
    rounds[1] = dict.fromkeys(rounds[1], 9.0)
    parts = {"ways_ms": 160.0, "servers_ms": 30.0, "client_ms": 10.0, "round_trip_ms": 80.0}
    figures = figures_of(rounds, parts)
    assert figures["push_ratio"] == pytest.approx(1.6)
    assert figures["drafts_ratio"] == pytest.approx(5.0)
    assert figures["floor_ms"] == 200.0
    assert figures["over_floor"] == pytest.approx(1.25)
    said = table({**figures, "delay": "netem", "pause_s": 0.8, "same_text": True})
    assert "0.80" in said and "1.25" in said
