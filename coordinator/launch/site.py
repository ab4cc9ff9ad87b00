"""The site's processes on this machine: migrations, then web, crawl worker, worker and beat, each waited for.

Knows how one sees that each is ready; does not know what they do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from coordinator.launch import commands, loopback
from coordinator.launch.child import Child, Recipe, Stage
from coordinator.launch.ports import LOOPBACK
from coordinator.launch.run_folder import PROJECT, RunFolder
from coordinator.launch.staff import keep_environment
from coordinator.launch.supervisor import Supervisor
from coordinator.launch.terminal import say
from swarm.errors import LocalError

MIGRATE_LIMIT_S = 300.0
READY_LIMIT_S = 120.0
# A crawl in progress may finish; the limit is longer than one dial.
WORKER_GRACE_S = 10.0


def start_site(supervisor: Supervisor, folder: RunFolder, env: Mapping[str, str], port: int) -> None:
    """Returns when all four are ready."""
    if not (PROJECT / "manage.py").exists():
        raise LocalError(f"There is no manage.py in {PROJECT}: run the launcher from a checkout of the project.")
    python = sys.executable
    migrate = Recipe(name="migrate", command=commands.migrate(python), stage=Stage.WEB, env=env, cwd=PROJECT, finishes=True)
    supervisor.run(migrate, MIGRATE_LIMIT_S)
    keep_environment(folder, env)
    web = supervisor.start(_recipe("web", commands.web(python, LOOPBACK, port), Stage.WEB, env))
    schedule = str(folder.path / "celerybeat-schedule")
    workers = [
        _start_celery(supervisor, folder, "crawl", commands.crawl(python), Stage.WORKER, env),
        _start_celery(supervisor, folder, "worker", commands.worker(python), Stage.WORKER, env),
        _start_celery(supervisor, folder, "beat", commands.beat(python, schedule), Stage.BEAT, env),
    ]
    supervisor.wait("the web process to answer", lambda: _is_live(port), READY_LIMIT_S, web)
    for started in workers:
        wait_for_ready_file(supervisor, folder, started)
    say(f"The site answers on http://{LOOPBACK}:{port}/")


def wait_for_ready_file(
    supervisor: Supervisor, folder: RunFolder, started: Child, each_poll: Callable[[], None] = lambda: None
) -> None:
    ready = folder.ready_file(started.name)
    supervisor.wait(f"{started.name} to be ready", lambda: ready.exists() or None, READY_LIMIT_S, started, each_poll=each_poll)


def _start_celery(
    supervisor: Supervisor, folder: RunFolder, name: str, command: Sequence[str], stage: Stage, env: Mapping[str, str]
) -> Child:
    ready = folder.ready_file(name)
    ready.unlink(missing_ok=True)
    return supervisor.start(_recipe(name, command, stage, {**env, "SEPAL_READY_FILE": str(ready)}))


def _recipe(name: str, command: Sequence[str], stage: Stage, env: Mapping[str, str]) -> Recipe:
    grace_s = 5.0 if stage is Stage.WEB else WORKER_GRACE_S
    return Recipe(name=name, command=command, stage=stage, env=env, cwd=PROJECT, grace_s=grace_s)


def _is_live(port: int) -> bool | None:
    return loopback.status(port, "/livez") == 200 or None
