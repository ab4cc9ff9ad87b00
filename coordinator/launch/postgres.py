"""An own PostgreSQL below the run folder: makes it, starts it on loopback with a password, knows when it answers.

It stops on SIGINT ("fast"): SIGTERM waits for every client to leave. No Unix socket: its path may be too long, and
nobody needs it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg

from coordinator.launch import kernel, ports
from coordinator.launch.binaries import PostgresPrograms
from coordinator.launch.child import Recipe, Stage
from coordinator.launch.listener import start_listener
from coordinator.launch.run_folder import kept_secret, write_atomically
from coordinator.launch.supervisor import Supervisor
from coordinator.launch.terminal import say
from coordinator.launch.unprivileged import Identity
from swarm.errors import LocalError

NAME = "sepal"
INITDB_LIMIT_S = 120.0
# Recovery after a kill can replay many minutes of changes.
READY_LIMIT_S = 120.0
ORPHAN_LIMIT_S = 10.0
THROWAWAY = ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]


def start_postgres(
    supervisor: Supervisor,
    programs: PostgresPrograms,
    home: Path,
    identity: Identity | None,
    env: Mapping[str, str],
    *,
    throwaway: bool,
) -> str:
    """The URL of a database that answers. `throwaway` trades safety against a power cut for speed."""
    major = _major_version(programs, identity)
    data = home / f"postgres-{major}"
    password = _password(home, data)
    _mention_other_versions(home, data)
    if not data.exists():
        _initialise(supervisor, programs, data, password, identity, env, major)
    _end_orphan(data)
    port = start_listener(
        supervisor,
        lambda port: _recipe(programs, data, port, identity, env, throwaway=throwaway),
        lambda port: _answers(port, password),
        READY_LIMIT_S,
    )
    _create_database(port, password)
    return f"postgres://{NAME}:{quote(password, safe='')}@{ports.LOOPBACK}:{port}/{NAME}"


def _recipe(
    programs: PostgresPrograms,
    data: Path,
    port: int,
    identity: Identity | None,
    env: Mapping[str, str],
    *,
    throwaway: bool,
) -> Recipe:
    command = [str(programs.postgres), "-D", str(data), "-p", str(port), "-c", f"listen_addresses={ports.LOOPBACK}"]
    command += ["-c", "unix_socket_directories=", "-c", "logging_collector=off", *(THROWAWAY if throwaway else [])]
    return Recipe(
        name="postgres",
        command=command,
        stage=Stage.POSTGRES,
        env=env,
        cwd=data,
        stop_signal=signal.SIGINT,
        death_signal=signal.SIGINT,
        grace_s=20.0,
        leashed=False,
        identity=identity,
    )


def _major_version(programs: PostgresPrograms, identity: Identity | None) -> int:
    try:
        asked = subprocess.run(
            [str(programs.postgres), "--version"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=30,
            user=identity.uid if identity else None,
            group=identity.gid if identity else None,
            extra_groups=[] if identity else None,
        )
    except OSError as error:
        raise LocalError(f"Cannot run {programs.postgres}: {error.strerror}.") from error
    found = re.search(r"\(PostgreSQL\) (\d+)", asked.stdout)
    if found is None:
        raise LocalError(
            f"{programs.postgres} does not run on this system: {(asked.stderr or asked.stdout).strip()} "
            "Name the folder of other Postgres programs in PG_BIN, or give DATABASE_URL."
        )
    return int(found[1])


def _password(home: Path, data: Path) -> str:
    kept = home / "postgres.password"
    if data.exists() and not kept.exists():
        raise LocalError(f"{data} has data, but its password file {kept} is gone. Put it back, or remove the data folder.")
    return kept_secret(kept)


def _mention_other_versions(home: Path, data: Path) -> None:
    if data.exists():
        return
    for other in sorted(home.glob("postgres-[0-9][0-9]")):
        say(f"Data of another Postgres version stays unused in {other}; {data.name} starts empty.")


def _initialise(
    supervisor: Supervisor,
    programs: PostgresPrograms,
    data: Path,
    password: str,
    identity: Identity | None,
    env: Mapping[str, str],
    major: int,
) -> None:
    """Under another name first: a half-made folder must not look like a database."""
    unfinished = data.with_name(f"{data.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    password_file = data.with_name("postgres.password.initdb")
    write_atomically(password_file, password, mode=0o600)
    if identity is not None:
        identity.own(unfinished)
        identity.own(password_file)
    # The builtin provider knows Unicode and does not change with the system's libraries.
    locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"] if major >= 17 else ["--no-locale"]
    command = [str(programs.initdb), "-D", str(unfinished), "-U", NAME, "-A", "scram-sha-256", "-E", "UTF8", *locale]
    command.append(f"--pwfile={password_file}")
    recipe = Recipe(
        name="initdb", command=command, stage=Stage.POSTGRES, env=env, cwd=unfinished, finishes=True, leashed=False,
        identity=identity,
    )  # fmt: skip
    try:
        supervisor.run(recipe, INITDB_LIMIT_S)
    finally:
        password_file.unlink(missing_ok=True)
    unfinished.replace(data)


def _end_orphan(data: Path) -> None:
    """A postmaster that outlived its launcher is ended; a postmaster.pid that names some other process is removed.

    Postgres itself takes any living process with that pid for a postmaster, and pids repeat soon in containers.
    """
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text(encoding="ascii").splitlines()[0])
    except FileNotFoundError:
        return
    except (ValueError, IndexError):
        pid_file.unlink(missing_ok=True)
        return
    postmaster = kernel.mark(pid)
    if postmaster is None or str(data) not in postmaster.command:
        pid_file.unlink(missing_ok=True)
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        kernel.send(pid, number)
        deadline = time.monotonic() + ORPHAN_LIMIT_S
        while kernel.is_running(postmaster) and time.monotonic() < deadline:
            time.sleep(0.1)


def _answers(port: int, password: str) -> bool:
    try:
        _connect(port, password).close()
    except psycopg.OperationalError:
        return False
    return True


def _create_database(port: int, password: str) -> None:
    with _connect(port, password) as connection, contextlib.suppress(psycopg.errors.DuplicateDatabase):
        connection.execute(f"CREATE DATABASE {NAME}")


def _connect(port: int, password: str) -> psycopg.Connection:
    return psycopg.connect(
        host=ports.LOOPBACK,
        port=port,
        user=NAME,
        password=password,
        dbname="postgres",
        connect_timeout=5,
        autocommit=True,
    )
