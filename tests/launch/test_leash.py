"""A leash ends a command together with everything it started, however the end comes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.launch import kernel
from tests.launch.conftest import LIMIT_S, wait_gone

LEASH = [sys.executable, "-m", "coordinator.launch.leash"]
# A grandchild in a session of its own, as daemons do; then says its pid and waits.
FAMILY = "setsid sleep 600 & echo $!; exec sleep 600"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 600; done"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.terminate()
        process.wait(LIMIT_S)
        assert process.stdout is not None
        process.stdout.close()


def leash(started: list[subprocess.Popen[bytes]], *words: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([*LEASH, *words], stdout=subprocess.PIPE, start_new_session=True)
    started.append(process)
    return process


def first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], LIMIT_S)[0], "it says nothing"
    return os.read(process.stdout.fileno(), 100).decode().strip()


def family(process: subprocess.Popen[bytes]) -> list[kernel.Mark]:
    marks = [kernel.mark(pid) for pid in kernel.descendants(process.pid)]
    return [known for known in marks if known]


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_its_exit_status_is_the_commands(started: list[subprocess.Popen[bytes]], script: str, status: int) -> None:
    assert leash(started, "--", "sh", "-c", script).wait(LIMIT_S) == status


def test_a_command_that_does_not_exist_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert subprocess.run([*LEASH, "--", "/no/such/program"], check=False).returncode == 127
    assert "cannot start /no/such/program" in capfd.readouterr().err


def test_what_a_killed_command_leaves_behind_is_ended(started: list[subprocess.Popen[bytes]]) -> None:
    process = leash(started, "--", "sh", "-c", FAMILY)
    grandchild = int(first_line(process))
    members = family(process)
    assert grandchild in [known.pid for known in members]
    command = next(known for known in members if known.pid != grandchild)
    os.kill(command.pid, signal.SIGKILL)
    assert process.wait(LIMIT_S) == 137
    assert not any(kernel.is_running(known) for known in members)


def test_sigterm_reaches_the_command_and_ends_the_rest(started: list[subprocess.Popen[bytes]]) -> None:
    process = leash(started, "--", "sh", "-c", "setsid sleep 600 & trap 'exit 7' TERM; echo $!; wait")
    first_line(process)
    members = family(process)
    process.terminate()
    assert process.wait(LIMIT_S) == 7
    assert not any(kernel.is_running(known) for known in members)


def test_a_stubborn_command_is_killed_after_its_grace(started: list[subprocess.Popen[bytes]]) -> None:
    process = leash(started, "--grace", "0.2", "--", "sh", "-c", STUBBORN)
    first_line(process)
    process.terminate()
    assert process.wait(LIMIT_S) == 137


def test_a_second_sigterm_means_now(started: list[subprocess.Popen[bytes]]) -> None:
    process = leash(
        started, "--grace", "3600", "--", "sh", "-c", "trap 'echo again' TERM; echo ready; while :; do sleep 600; done"
    )
    first_line(process)
    process.terminate()
    process.terminate()
    # Two signals may arrive as one while the first is pending; asking again is what a person does, too.
    while process.poll() is None:
        process.terminate()
        select.select([], [], [], 0.1)
    assert process.returncode == 137


def test_when_the_launcher_is_killed_everything_goes(tmp_path: Path) -> None:
    """The launcher's part is to have the kernel send SIGTERM to the leash; the command here would ignore it for ever."""
    pids = tmp_path / "pids"
    program = (
        "import os, signal, subprocess, sys\n"
        "from coordinator.launch import kernel\n"
        "me = os.getpid()\n"
        "subprocess.Popen(sys.argv[1:], preexec_fn=lambda: kernel.die_with_parent(signal.SIGTERM, me))\n"
        "signal.pause()\n"
    )
    script = f"trap '' TERM; setsid sleep 600 & echo $! > {pids}; echo ready; while :; do sleep 600; done"
    command = [sys.executable, "-c", program, *LEASH, "--grace", "3600", "--", "sh", "-c", script]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE)
    first_line(launcher)
    members = family(launcher)
    assert len(members) >= 3
    launcher.kill()
    launcher.wait(LIMIT_S)
    wait_gone(members)
    assert launcher.stdout is not None
    launcher.stdout.close()
