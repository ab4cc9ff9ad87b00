"""The demo: a swarm that serves, is watched, and heals, on this machine alone; what happens is told on the terminal.

Knows what is started in which order, and demo.json, by which other programs find the running demo.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coordinator.launch import commands, loopback
from coordinator.launch.child import Recipe, Stage
from coordinator.launch.follow import Follower
from coordinator.launch.gateway import gateway_url, start_gateway, wait_for_gateway, ways_to_ask
from coordinator.launch.narrate import narrate
from coordinator.launch.ports import LOOPBACK, gateway_port, site_port
from coordinator.launch.run_folder import PROJECT, RunFolder, kept_secret, write_json
from coordinator.launch.services import start_services
from coordinator.launch.site import start_site
from coordinator.launch.supervisor import Supervisor
from coordinator.launch.swarm import DemoServer, bootstrap_address, start_bootstraps, start_server
from coordinator.launch.terminal import say

DEFAULT_MODEL = PROJECT / ".cache" / "SmolLM2-135M-Instruct"
DEFAULT_SERVERS = 4
DEFAULT_BLOCKS = 12
DEFAULT_CRAWL_INTERVAL_S = 10.0
MODEL_LIMIT_S = 600.0
SWARM = "demo"
NARRATE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    model: Path
    port: int | None
    servers: int
    blocks: int
    bootstraps: int = 1
    crawl_interval_s: float


@dataclass(slots=True)
class Demo:
    supervisor: Supervisor
    folder: RunFolder
    plan: Plan
    port: int
    gateway: str
    """Its address."""
    bootstraps: tuple[str, ...] = ()
    servers: list[DemoServer] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)
    _seen: Mapping[str, Any] | None = None
    _next_look: float = 0.0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def tell(self, line: str) -> None:
        say(f"{time.monotonic() - self.begun:6.1f} s  {line}")

    def look(self) -> None:
        """Called often; asks the site once a second and tells what is new."""
        for server in self.servers:
            server.echo()
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + NARRATE_EVERY_S
        _notice_servers(self)
        current = loopback.document(self.port, "/api/v1/models")
        if isinstance(current, dict):
            names = {server.peer_id: server.name for server in self.servers}
            for line in narrate(self._seen, current, names):
                self.tell(line)
            self._seen = current

    def write_state(self) -> None:
        state = {
            "site": self.url,
            "bootstrap": self.bootstraps[0],
            "gateway": self.gateway,
            "model": str(self.plan.model),
            "launcher_pid": os.getpid(),
            "servers": [server.entry() for server in self.servers],
            "started_at": self.started_at,
        }
        write_json(self.folder.demo, state)


def run_demo(supervisor: Supervisor, folder: RunFolder, plan: Plan, env: Mapping[str, str]) -> None:
    """Until somebody asks to stop."""
    port = site_port(plan.port)
    demo = Demo(supervisor, folder, plan, port, gateway_url(gateway_port(port)))
    try:
        _start(demo, {**env, "PYTHONUNBUFFERED": "1", "HIVEMIND_COLORS": "0"})
        say(_banner(demo))
        supervisor.stay(demo.look)
    finally:
        folder.demo.unlink(missing_ok=True)


def _start(demo: Demo, env: Mapping[str, str]) -> None:
    supervisor, folder, plan = demo.supervisor, demo.folder, demo.plan
    _ensure_model(supervisor, plan.model, env)
    demo.begun = time.monotonic()
    bootstraps = start_bootstraps(supervisor, folder, env, plan.bootstraps)
    urls = start_services(supervisor, folder, env)
    demo.tell("Postgres and Valkey answer.")
    demo.bootstraps = tuple(bootstrap_address(supervisor, folder, child) for child in bootstraps)
    settings = commands.SiteEnvironment(
        database_url=urls.database,
        redis_url=urls.redis,
        secret_key=kept_secret(folder.path / "secret-key"),
        url=demo.url,
        swarm=SWARM,
        initial_peers=" ".join(demo.bootstraps),
        crawl_interval_s=plan.crawl_interval_s,
        gateway_url=demo.gateway,
    )
    start_site(supervisor, folder, {**env, **settings.variables()}, demo.port)
    gateway = start_gateway(
        supervisor, folder, env, str(plan.model), demo.bootstraps, demo.url, urlsplit(demo.gateway).port or 0
    )
    for number in range(1, plan.servers + 1):
        server = commands.Server(
            name=f"demo-{number}",
            model=str(plan.model),
            initial_peers=demo.bootstraps,
            coordinator=demo.url,
            num_blocks=plan.blocks,
            identity_path=str(folder.path / f"server-{number}.id"),
            ready_file=str(folder.ready_file(f"server-{number}")),
        )
        demo.servers.append(start_server(supervisor, folder, env, f"server-{number}", server, demo.look))
        demo.write_state()
    wait_for_gateway(supervisor, folder, gateway, demo.look)


def _ensure_model(supervisor: Supervisor, model: Path, env: Mapping[str, str]) -> None:
    if (model / "config.json").exists():
        return
    say(f"Making the demo model in {model} (once) …")
    recipe = Recipe(
        name="model",
        command=commands.demo_model(sys.executable, str(model)),
        stage=Stage.SERVER,
        env=env,
        cwd=PROJECT,
        finishes=True,
    )
    log = Follower(supervisor.folder.logs / "model.log")

    def echo() -> None:
        for line in log.new_lines():
            say(f"model │ {line}")

    supervisor.run(recipe, MODEL_LIMIT_S, each_poll=echo)


def _notice_servers(demo: Demo) -> None:
    """Servers may die, that is what the demo is for; a moved one has written its ready file again."""
    ended = [server for server in demo.servers if server.child.exit_status() is not None]
    for server in ended:
        demo.servers.remove(server)
        demo.supervisor.forget(server.child)
    moved = [server for server in demo.servers if server.read()]
    if ended or moved:
        demo.write_state()
    for server in ended:
        how = _ended(server.child.exit_status())
        demo.tell(f"✕ {server.name} (…{server.peer_id[-6:]}) {how}; its log: {server.child.log}")


def _ended(status: int | None) -> str:
    return "was killed" if status == 137 else f"ended with exit status {status}"


def _banner(demo: Demo) -> str:
    rule = "─" * 78
    return "\n".join(
        [
            rule,
            f"  Sepal is at {demo.url}/",
            "",
            "  Things to try, in another terminal:",
            '    .venv/bin/sepal chat "What is the capital of France?"',
            "    make kill          kills one server; the page shows the gap, and the swarm heals",
            f"    curl {demo.url}/api/v1/models",
            f"    {demo.url}/chat    to talk with the swarm",
            f"    make staff ARGS=YOU    a log-in of your own for {demo.url}/admin/ (it asks for a password)",
            "",
            f"  The gateway answers OpenAI's interface at {demo.gateway}/v1:",
            *(f"    {line}" for line in ways_to_ask(demo.gateway, demo.plan.model.name)),
            "",
            f"  Logs are in {demo.folder.logs}. Ctrl-C stops everything.",
            rule,
        ]
    )
