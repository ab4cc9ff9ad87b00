"""Postgres and Valkey for the site: those that the environment names, or our own. Knows URLs, not what is stored."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.launch.binaries import postgres_programs, valkey_program
from coordinator.launch.postgres import start_postgres
from coordinator.launch.run_folder import RunFolder, locked
from coordinator.launch.supervisor import Supervisor, supervising
from coordinator.launch.unprivileged import other_identity, service_home
from coordinator.launch.valkey import start_valkey


@dataclass(frozen=True, slots=True)
class Urls:
    database: str
    redis: str


def start_services(supervisor: Supervisor, folder: RunFolder, env: Mapping[str, str], *, throwaway: bool = False) -> Urls:
    database, redis = env.get("DATABASE_URL"), env.get("REDIS_URL")
    if database and redis:
        return Urls(database, redis)
    identity = other_identity([*sorted(folder.path.glob("postgres-*")), folder.path / "valkey"])
    home = service_home(folder.path, identity)
    own_env = _environment(env, home)
    if not database:
        programs = postgres_programs(env, home, identity)
        database = start_postgres(supervisor, programs, home, identity, own_env, throwaway=throwaway)
    if not redis:
        redis = start_valkey(supervisor, valkey_program(env, home, identity), home, identity, own_env)
    return Urls(database, redis)


@contextlib.contextmanager
def running(run_dir: Path | None = None) -> Iterator[tuple[str, str]]:
    """`(database_url, redis_url)` for the length of the block, for tests: nothing is promised after a power cut.

    Without a folder a temporary one is used and removed. To be entered on the main thread; a second launcher on the
    same folder is refused with LocalError.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(locked(run_dir or stack.enter_context(_temporary_folder())))
        supervisor = stack.enter_context(supervising(folder))
        urls = start_services(supervisor, folder, os.environ, throwaway=True)
        yield urls.database, urls.redis


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sepal-") as name:
        # mkdtemp keeps everybody out, also the user that root runs the services as.
        Path(name).chmod(0o711)
        yield Path(name)


def _environment(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Only what the programs need: PG* variables and a foreign HOME would change what they do."""
    kept = {name: env[name] for name in ("PATH", "TZ", "LD_LIBRARY_PATH") if name in env}
    return {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(home), **kept}
