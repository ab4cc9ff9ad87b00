"""The demo's gateway: the swarm behind OpenAI's HTTP interface, on loopback.

Knows its process, its ready file, and what to type to try it. It imports nothing of the gateway itself.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from coordinator.launch import commands, swarm
from coordinator.launch.child import Child, Recipe, Stage
from coordinator.launch.ports import LOOPBACK
from coordinator.launch.run_folder import PROJECT, RunFolder
from coordinator.launch.site import wait_for_ready_file
from coordinator.launch.supervisor import Supervisor

GRACE_S = 10.0
"""Streams are told, and p2pd ends."""

MANNER = {"SEPAL_GATEWAY_TEMPERATURE": "0.2", "SEPAL_GATEWAY_TOP_P": "0.9"}
"""For the demo's small model, by the advice of its authors; at OpenAI's default of 1 it talks at random."""


def gateway_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def start_gateway(
    supervisor: Supervisor,
    folder: RunFolder,
    env: Mapping[str, str],
    model: str,
    bootstraps: tuple[str, ...],
    site: str,
    port: int,
) -> Child:
    """Returns at once: it loads while the servers do."""
    ready = folder.ready_file("gateway")
    ready.unlink(missing_ok=True)
    gateway = commands.Gateway(
        model=model, initial_peers=bootstraps, site=site, host=LOOPBACK, port=port, ready_file=str(ready)
    )
    recipe = Recipe(
        name="gateway",
        command=gateway.command(swarm.sepal_program()),
        stage=Stage.GATEWAY,
        env={**env, **MANNER, "OMP_NUM_THREADS": "1"},
        cwd=PROJECT,
        grace_s=GRACE_S,
    )
    return supervisor.start(recipe)


def wait_for_gateway(supervisor: Supervisor, folder: RunFolder, gateway: Child, each_poll: Callable[[], None]) -> None:
    wait_for_ready_file(supervisor, folder, gateway, each_poll)


def ways_to_ask(url: str, model: str) -> list[str]:
    """Lines to copy: with curl, and with whatever speaks OpenAI's interface."""
    question = {"model": model, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    return [
        f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(question))}",
        f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=none     then any program that uses OpenAI's SDK",
    ]
