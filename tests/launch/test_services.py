"""Real Postgres and Valkey, started and stopped by real launchers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
import redis

from coordinator.launch import kernel, services
from coordinator.launch.run_folder import PROJECT
from tests.launch.conftest import LIMIT_S, Launcher, Start, clean_environment, wait_gone

pytestmark = pytest.mark.slow

NOBODY = 65534


@pytest.fixture(autouse=True)
def own_services(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "PG_BIN"):
        monkeypatch.delenv(name, raising=False)


def urls(launcher: Launcher) -> tuple[str, str]:
    return launcher.line("DATABASE_URL="), launcher.line("REDIS_URL=")


def test_the_block_has_both_services_and_nothing_is_left_after_it(run_dir: Path) -> None:
    with services.running(run_dir) as (database_url, redis_url):
        marks = [kernel.mark(pid) for pid in kernel.descendants(os.getpid())]
        with psycopg.connect(database_url) as connection:
            assert connection.execute("SELECT current_database(), lower('ÄÖ')").fetchone() == ("sepal", "äö")
        assert redis.Redis.from_url(redis_url).ping()
    ours = [known for known in marks if known and str(run_dir) in " ".join(known.command)]
    assert ours
    assert not any(kernel.is_running(known) for known in ours)


def test_neither_service_answers_without_its_password(run_dir: Path) -> None:
    with services.running(run_dir) as (database_url, redis_url):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(psycopg.conninfo.make_conninfo(database_url, password="wrong"))
        port = redis.Redis.from_url(redis_url).connection_pool.connection_kwargs["port"]
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).get("key")
    for name in ("postgres.password", "valkey.password"):
        assert (run_dir / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_way_to_ask_stops_all_in_order_even_with_a_client_connected(start: Start, number: signal.Signals) -> None:
    launcher = start("services")
    database_url, _ = urls(launcher)
    with psycopg.connect(database_url):
        children = launcher.children()
        assert len(children) >= 2
        assert launcher.stop(number) == 0
    assert not any(kernel.is_running(known) for known in children)


def test_after_kill_9_nothing_is_left_and_the_next_start_has_every_row(start: Start) -> None:
    first = start("services")
    database_url, redis_url = urls(first)
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
    redis.Redis.from_url(redis_url).set("kept", "yes")
    children = first.children()
    first.process.kill()
    # At once, while the first one's children may still be ending.
    second = start("services")
    database_url, redis_url = urls(second)
    wait_gone(children)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
    assert redis.Redis.from_url(redis_url).get("kept") == b"yes"
    assert second.stop() == 0


def test_a_killed_postgres_is_started_again_at_the_same_address_with_every_row(start: Start) -> None:
    launcher = start("services")
    database_url, _ = urls(launcher)
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
    postmaster = next(known for known in launcher.children() if known.command[0].endswith("/postgres"))
    os.kill(postmaster.pid, signal.SIGKILL)
    launcher.line("postgres ended with exit status 137; it is started again.")
    assert rows_once_it_answers(database_url) == (1000,)
    assert launcher.stop() == 0
    wait_gone(launcher.seen)


def rows_once_it_answers(database_url: str) -> object:
    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(database_url) as connection:
                return connection.execute("SELECT count(*) FROM kept").fetchone()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "Postgres did not come back"
            time.sleep(0.1)


def test_a_stale_pid_file_that_names_a_living_stranger_does_not_hinder(run_dir: Path) -> None:
    with services.running(run_dir):
        data = next(run_dir.glob("postgres-[0-9]*"))
        lines = (data / "postmaster.pid").read_text().splitlines()
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        (data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        with services.running(run_dir) as (database_url, _):
            psycopg.connect(database_url).close()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_second_launcher_is_refused_and_the_first_goes_on(start: Start) -> None:
    first = start("services")
    database_url, _ = urls(first)
    second = start("services")
    second.line(f"A launcher is already running (pid {first.process.pid})")
    assert second.process.wait(LIMIT_S) == 1
    psycopg.connect(database_url).close()


def test_urls_in_the_environment_are_used_and_nothing_is_started(start: Start) -> None:
    launcher = start("services", env={"DATABASE_URL": "postgres://theirs/db", "REDIS_URL": "redis://theirs/1"})
    assert urls(launcher) == ("postgres://theirs/db", "redis://theirs/1")
    assert launcher.children() == []
    assert launcher.stop() == 0


def test_one_url_in_the_environment_starts_the_other_service_only(start: Start) -> None:
    launcher = start("services", env={"DATABASE_URL": "postgres://theirs/db"})
    assert urls(launcher)[0] == "postgres://theirs/db"
    (only,) = launcher.children()
    assert "valkey" in only.command[0]


def test_a_program_that_fails_is_shown_with_the_end_of_its_log(start: Start, run_dir: Path) -> None:
    programs = run_dir / "programs"
    programs.mkdir(mode=0o755)
    for name in ("postgres", "initdb"):
        (programs / name).write_text(
            '#!/bin/sh\n[ "$1" = --version ] && exec echo "postgres (PostgreSQL) 18.0"\nseq 30; exit 3\n'
        )
        (programs / name).chmod(0o755)
    launcher = start("services", env={"PG_BIN": str(programs)})
    launcher.line("initdb failed with exit status 3.")
    assert launcher.process.wait(LIMIT_S) == 1
    assert [line.strip() for line in launcher.lines if line.strip().isdigit()] == [str(n) for n in range(11, 31)]
    assert not list(run_dir.glob("postgres-18"))


def test_a_lost_password_file_is_named(run_dir: Path, start: Start) -> None:
    with services.running(run_dir):
        pass
    (run_dir / "postgres.password").unlink()
    launcher = start("services")
    assert "postgres.password is gone" in launcher.line(str(run_dir))
    assert launcher.process.wait(LIMIT_S) == 1


def test_it_runs_for_an_ordinary_user_without_a_home(start: Start, run_dir: Path) -> None:
    # Imports come first: root's interpreter may lie where that user cannot read.
    program = (
        "import os, sys, encodings.idna, psycopg, coordinator.launch.cli as cli\n"
        "if os.geteuid() == 0:\n"
        f"    os.chown(sys.argv[-1], {NOBODY}, {NOBODY}); os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    launcher = start("services", program=[sys.executable, "-c", program])
    database_url, redis_url = urls(launcher)
    psycopg.connect(database_url).close()
    assert redis.Redis.from_url(redis_url).ping()
    assert Path(f"/proc/{launcher.process.pid}").stat().st_uid != 0
    children = launcher.children()
    assert launcher.stop() == 0
    assert not any(kernel.is_running(known) for known in children)


def test_below_a_private_folder_the_data_is_where_the_services_can_reach_it(run_dir: Path) -> None:
    """Root's 0700 home is the usual case; an ordinary user's services run as that user and stay inside."""
    private = run_dir / "private"
    private.mkdir(mode=0o700)
    inside = private / "run"
    try:
        with services.running(inside) as (database_url, _):
            psycopg.connect(database_url).close()
        home = (inside / "services").resolve() if os.geteuid() == 0 else inside
        assert list(home.glob("postgres-[0-9]*"))
    finally:
        subprocess.run([PROJECT / "scripts/clean", inside], check=True, env=clean_environment())
    assert not inside.exists()
    assert not home.exists()


def test_clean_refuses_a_folder_that_is_in_use(run_dir: Path) -> None:
    with services.running(run_dir):
        refused = subprocess.run([PROJECT / "scripts/clean", run_dir], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"(pid {os.getpid()})" in refused.stderr
    assert run_dir.exists()
