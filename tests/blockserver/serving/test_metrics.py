"""One condition, told four ways: rpc_info's keys, metrics, /readyz and systemd's status line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import msgpack
import pytest
from prometheus_client.parser import text_string_to_metric_families

from blockserver.serving.condition import STATES, Condition
from blockserver.serving.metrics import MetricsPage
from blockserver.serving.systemd import Systemd
from swarm.errors import LocalError
from swarm.wire.spans import Span

JOINING = Condition("joining", "tiny-hf", "sepal-0.1.0", "cpu", "bfloat16", span=Span(3, 7), loading=0.62)
ONLINE = replace(JOINING, state="online", loading=None, sessions_active=2, throughput=12.5, inference_rps=40.0, reconnects=1)


class Told:
    now = JOINING


@pytest.fixture
def page() -> Iterator[MetricsPage]:
    Told.now = JOINING
    made = MetricsPage(0, lambda: Told.now)
    yield made
    made.close()


def values(page: MetricsPage) -> dict[str, float]:
    text = httpx.get(f"{page.url}/metrics").text
    return {
        sample.name + (f"={sample.labels['state']}" if "state" in sample.labels else ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_follow_the_server_and_leave_out_what_is_not_known(page: MetricsPage) -> None:
    seen = values(page)
    assert seen["sepal_server_loading_ratio"] == 0.62
    assert [state for state in STATES if seen[f"sepal_server_state={state}"]] == ["joining"]
    assert "sepal_server_inference_blocks_per_second" not in seen
    Told.now = ONLINE
    seen = values(page)
    assert (seen["sepal_server_sessions"], seen["sepal_server_reconnects_total"]) == (2.0, 1.0)
    assert "sepal_server_loading_ratio" not in seen
    assert len(seen) < 40


def test_ready_means_online_and_connected(page: MetricsPage) -> None:
    def ready() -> tuple[int, str]:
        answer = httpx.get(f"{page.url}/readyz")
        return answer.status_code, answer.text

    assert ready() == (503, "joining: loading blocks 3–6 of tiny-hf, 62 %\n")
    Told.now = ONLINE
    assert ready() == (200, "online: blocks 3–6 of tiny-hf, 2 sessions\n")
    Told.now = replace(ONLINE, connected=False, sessions_active=1)
    assert ready() == (503, "online: blocks 3–6 of tiny-hf, 1 session, connection to the swarm lost\n")
    assert httpx.get(f"{page.url}/").status_code == 404


def test_the_page_is_on_loopback_and_a_taken_port_is_named(page: MetricsPage) -> None:
    assert page.url.startswith("http://127.0.0.1:")
    port = int(page.url.rsplit(":", 1)[1])
    with pytest.raises(LocalError, match=f"--metrics-port {port}"):
        MetricsPage(port, lambda: JOINING)


def test_rpc_infos_keys_are_plain_msgpack() -> None:
    for now in (JOINING, ONLINE, Condition("starting", "p", "v", "cpu", "float32")):
        said = now.to_info()
        assert msgpack.unpackb(msgpack.packb(said)) == said
    assert (JOINING.to_info()["loading_progress"], JOINING.to_info()["start_block"]) == (0.62, 3)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(5)
        yield made


def test_systemd_is_told_by_its_socket(listener: socket.socket) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "60000000"})
    assert systemd.watchdog_interval_s == 30.0
    assert systemd.ready(ONLINE.in_words() + "\nREADY=0") and systemd.alive() and systemd.stopping()
    assert listener.recv(999).decode() == "READY=1\nSTATUS=online: blocks 3–6 of tiny-hf, 2 sessions READY=0"
    assert listener.recv(999) == b"WATCHDOG=1"
    assert listener.recv(999).startswith(b"STOPPING=1\n")


def test_an_abstract_socket_is_written_with_an_at_sign() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind("")  # the kernel picks an abstract name
        made.settimeout(5)
        assert Systemd({"NOTIFY_SOCKET": "@" + made.getsockname()[1:].decode()}).alive()
        assert made.recv(99) == b"WATCHDOG=1"


def test_without_systemd_nothing_is_said(tmp_path: Path) -> None:
    assert not Systemd({}).ready("x")
    assert Systemd({"WATCHDOG_USEC": "1"}).watchdog_interval_s is None
    assert not Systemd({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).alive()
