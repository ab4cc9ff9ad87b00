"""Containers and units run the launcher's own commands."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.launch import commands
from coordinator.launch.run_folder import PROJECT
from coordinator.swarms import read as read_swarms
from swarm.dht.addresses import parse_peer_addresses

EVERYWHERE = "/ip4/0.0.0.0/tcp/31337"
JOIN = PROJECT / "deploy/docker/join.py"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
    return loaded


def server(number: int) -> list[str]:
    return commands.Server(
        name=f"server-{number}",
        model="/SmolLM2-135M-Instruct",
        initial_peers=("@bootstrap",),
        coordinator="http://web:8000",
        num_blocks=16,
        host_maddr=EVERYWHERE,
        identity_path="/state/server.id",
        ready_file="/state/ready.json",
    ).command("sepal")


EXPECTED = {
    "migrate": commands.migrate("python"),
    "web": commands.web("python", "0.0.0.0", 8000),
    "crawl": commands.crawl("python"),
    "worker": commands.worker("python"),
    "beat": commands.beat("python", "/state/celerybeat-schedule"),
    "bootstrap": commands.Bootstrap(
        host_maddr=EVERYWHERE, identity_path="/swarm/bootstrap.id", ready_file="/swarm/bootstrap.json"
    ).command("sepal"),
    "gateway": commands.Gateway(
        model="/SmolLM2-135M-Instruct",
        initial_peers=("@bootstrap",),
        site="${SEPAL_URL:-http://localhost:8000}",
        host="0.0.0.0",
        port=8900,
        ready_file="/state/ready.json",
    ).command("sepal"),
    "server-1": server(1),
    "server-2": server(2),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_container_runs_the_launchers_command(compose: dict[str, Any], name: str) -> None:
    assert compose["services"][name]["command"] == EXPECTED[name]


def test_there_is_a_container_for_every_process_and_for_both_services(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {*EXPECTED, "postgres", "redis"}


def test_site_containers_get_every_setting_of_the_launcher(compose: dict[str, Any]) -> None:
    settings = commands.SiteEnvironment(
        database_url="", redis_url="", secret_key="", url="", swarm="", initial_peers="", crawl_interval_s=10
    ).variables()
    for name in ("web", "crawl", "worker", "beat", "migrate"):
        given = set(compose["services"][name]["environment"])
        # join.py adds the first one; the others are an operator's to set.
        assert given == set(settings) - {"SEPAL_INITIAL_PEERS"} | {"SEPAL_SWARMS", "SEPAL_TRUSTED_REPORTERS"}


def test_compose_has_no_secret_of_its_own(compose: dict[str, Any]) -> None:
    environment = compose["services"]["web"]["environment"]
    assert environment["SEPAL_SECRET_KEY"].startswith("${SEPAL_SECRET_KEY:?")
    assert "${SEPAL_DB_PASSWORD:?" in environment["DATABASE_URL"]


def test_only_the_web_container_is_checked_by_its_page(compose: dict[str, Any]) -> None:
    for name in ("crawl", "worker", "beat"):
        assert compose["services"][name]["healthcheck"] == {"disable": True}
    assert "healthcheck" not in compose["services"]["web"]
    assert "/readyz" in (PROJECT / "Dockerfile").read_text()


def test_images_do_not_run_as_root() -> None:
    stages = re.split(r"^FROM ", (PROJECT / "Dockerfile").read_text(), flags=re.MULTILINE)
    for target in ("site", "blockserver"):
        (stage,) = [text for text in stages if text.splitlines()[0].endswith(f"AS {target}")]
        assert "\nUSER sepal\n" in stage


UNITS = {
    "sepal-web": commands.web("/opt/sepal/.venv/bin/python", "127.0.0.1", 8000),
    "sepal-crawl": commands.crawl("/opt/sepal/.venv/bin/python"),
    "sepal-worker": commands.worker("/opt/sepal/.venv/bin/python"),
    "sepal-beat": commands.beat("/opt/sepal/.venv/bin/python", "/var/lib/sepal/celerybeat-schedule"),
}


@pytest.mark.parametrize("name", UNITS)
def test_the_unit_runs_the_launchers_command(name: str) -> None:
    text = (PROJECT / "deploy/systemd" / f"{name}.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)
    # systemd writes a percent sign twice.
    assert shlex.split(line.replace("%%", "%")) == UNITS[name]


def test_a_container_joins_by_the_bootstraps_name(tmp_path: Path) -> None:
    ready = tmp_path / "bootstrap.json"
    ready.write_text(json.dumps({"peer_id": "QmPeer", "addresses": ["/ip4/172.18.0.2/tcp/31337/p2p/QmPeer"], "pid": 1}))
    show = "import os, sys; print(os.environ['SEPAL_INITIAL_PEERS'], *sys.argv[1:])"
    command = [sys.executable, str(JOIN), str(ready), "bootstrap", "31337", sys.executable, "-c", show, "@bootstrap", "x"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    address = "/dns4/bootstrap/tcp/31337/p2p/QmPeer"
    assert said.split() == [address, address, "x"]


def test_a_container_can_watch_several_swarms_one_of_them_its_own(tmp_path: Path) -> None:
    ready = tmp_path / "bootstrap.json"
    ready.write_text(json.dumps({"peer_id": "QmPeer", "addresses": [], "pid": 1}))
    swarms = [
        {"name": "own", "initial_peers": ["@bootstrap"]},
        {"name": "lab", "initial_peers": ["/ip4/198.51.100.7/tcp/1/p2p/Qm"]},
    ]
    show = "import os; print(os.environ['SEPAL_SWARMS'])"
    command = [sys.executable, str(JOIN), str(ready), "bootstrap", "31337", sys.executable, "-c", show]
    env = {**os.environ, "SEPAL_SWARMS": json.dumps(swarms)}
    found = read_swarms(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout, {})
    assert [swarm["initial_peers"] for swarm in found] == [
        ["/dns4/bootstrap/tcp/31337/p2p/QmPeer"],
        ["/ip4/198.51.100.7/tcp/1/p2p/Qm"],
    ]


def test_the_example_of_several_swarms_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_swarms(str(PROJECT / "deploy/swarms.toml"), {})
    assert [(swarm["name"], swarm["relay"], swarm["models"]) for swarm in found] == [
        ("main", True, []),
        ("lab", False, ["_private-model"]),
    ]
    for swarm in found:
        assert parse_peer_addresses(swarm["initial_peers"]) == tuple(swarm["initial_peers"])


def test_every_variable_of_the_units_example_is_in_the_operators_guide() -> None:
    text = (PROJECT / "deploy/systemd/site.env").read_text()
    names = set(re.findall(r"^#?([A-Z_]+)=", text, flags=re.MULTILINE))
    guide = (PROJECT / "docs/operating.md").read_text()
    assert len(names) > 8 and all(f"| `{name}` |" in guide for name in names)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_half_written_ready_file_is_waited_for(tmp_path: Path, text: str) -> None:
    ready = tmp_path / "bootstrap.json"
    address = runpy.run_path(str(JOIN))["address"]
    assert address(ready, "bootstrap", "1") is None
    ready.write_text(text)
    assert address(ready, "bootstrap", "1") is None
