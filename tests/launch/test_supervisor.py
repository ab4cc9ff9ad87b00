"""Children are waited for, noticed when they end, and stopped in the order of who uses whom."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.launch import kernel
from coordinator.launch.child import Recipe, Stage
from coordinator.launch.run_folder import RunFolder, locked, read_json, write_json
from coordinator.launch.supervisor import ChildFailed, StopRequested, Supervisor, supervising
from swarm.errors import LocalError

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def folder(run_dir: Path) -> Iterator[RunFolder]:
    with locked(run_dir) as held:
        yield held


def script(folder: RunFolder, name: str, body: str, stage: Stage = Stage.WEB, *, leashed: bool = False) -> Recipe:
    return Recipe(
        name=name, command=["sh", "-c", body], stage=stage, env=ENV, cwd=folder.path, grace_s=1.0, leashed=leashed
    )  # fmt: skip


def is_ready(folder: RunFolder, *names: str) -> bool | None:
    return all((folder.path / f"{name}.ready").exists() for name in names) or None


def test_stages_stop_from_servers_down_to_postgres(folder: RunFolder) -> None:
    with supervising(folder) as supervisor:
        for stage in Stage:
            body = f"trap 'echo {stage.name} >> order; exit 0' TERM; touch {stage.name}.ready; while :; do sleep 0.05; done"
            supervisor.start(script(folder, stage.name, body, stage))
        supervisor.wait("all", lambda: is_ready(folder, *(stage.name for stage in Stage)), 30)
    stopped = (folder.path / "order").read_text().split()
    assert stopped == [stage.name for stage in sorted(Stage, reverse=True)]


def test_a_child_that_ends_early_is_reported_with_the_end_of_its_log(folder: RunFolder) -> None:
    with supervising(folder) as supervisor:
        started = supervisor.start(script(folder, "web", "seq 100; exit 3"))
        with pytest.raises(ChildFailed, match="web ended unexpectedly with exit status 3") as failed:
            supervisor.wait("web to answer", lambda: None, 30, started)
    assert failed.value.last_lines == [str(number) for number in range(81, 101)]


def test_an_essential_child_is_noticed_while_waiting_for_another(folder: RunFolder) -> None:
    with supervising(folder) as supervisor:
        started = supervisor.start(script(folder, "web", "exec sleep 600"))
        supervisor.start(script(folder, "beat", "exit 0"))
        with pytest.raises(ChildFailed, match="beat ended"):
            supervisor.wait("web to answer", lambda: None, 30, started)


def test_a_wait_in_vain_says_for_what_and_how_long(folder: RunFolder) -> None:
    with supervising(folder) as supervisor, pytest.raises(LocalError, match="Waited 0 s for the moon, in vain"):
        supervisor.wait("the moon", lambda: None, 0)


def test_a_command_that_is_meant_to_end_must_end_well(folder: RunFolder) -> None:
    with supervising(folder) as supervisor:
        supervisor.run(Recipe(name="good", command=["true"], stage=Stage.WEB, env=ENV, cwd=folder.path, finishes=True), 30)
        with pytest.raises(ChildFailed, match="bad failed with exit status 1"):
            supervisor.run(Recipe(name="bad", command=["false"], stage=Stage.WEB, env=ENV, cwd=folder.path, finishes=True), 30)
        assert supervisor.children == []


def test_a_program_that_is_not_there_is_named(folder: RunFolder) -> None:
    recipe = Recipe(name="web", command=["/no/such"], stage=Stage.WEB, env=ENV, cwd=folder.path, leashed=False)
    with supervising(folder) as supervisor, pytest.raises(LocalError, match=r"Cannot start web \(/no/such\): No such file"):
        supervisor.start(recipe)


def test_a_stubborn_child_is_killed(folder: RunFolder) -> None:
    with supervising(folder) as supervisor:
        started = supervisor.start(
            script(folder, "web", "trap '' TERM; touch web.ready; while :; do sleep 600; done", leashed=True)
        )
        supervisor.wait("web", lambda: is_ready(folder, "web"), 30)
        members = [kernel.mark(pid) for pid in kernel.descendants(started.process.pid)]
    assert started.exit_status() == 137
    assert members
    assert not any(kernel.is_running(known) for known in members if known)


def test_a_request_to_stop_interrupts_any_wait(folder: RunFolder) -> None:
    supervisor = Supervisor(folder)
    supervisor.request_stop()
    with pytest.raises(StopRequested):
        supervisor.wait("anything", lambda: None, 600)


def test_leftovers_of_a_killed_launcher_are_ended_and_strangers_are_not(folder: RunFolder) -> None:
    with supervising(folder) as theirs:
        left = theirs.start(script(folder, "left", "exec sleep 1.5"))
        record = read_json(folder.processes)
        me = kernel.mark(os.getpid())
        assert me is not None
        stranger = {"pid": me.pid, "started": me.started - 1, "command": ["not", "me"]}
        write_json(folder.processes, [*record, stranger])
        Supervisor(folder).end_leftovers()
        assert left.mark is not None
        assert not kernel.is_running(left.mark)
        theirs.forget(left)
    assert not folder.processes.exists()


def test_the_previous_log_is_kept(folder: RunFolder) -> None:
    with supervising(folder) as supervisor:
        for word in ("first", "second"):
            recipe = Recipe(
                name="web", command=["echo", word], stage=Stage.WEB, env=ENV, cwd=folder.path, finishes=True, leashed=False
            )
            supervisor.run(recipe, 30)
    assert (folder.logs / "web.log").read_text() == "second\n"
    assert (folder.logs / "web.log.old").read_text() == "first\n"


def test_the_launcher_loads_neither_django_nor_torch_nor_hivemind() -> None:
    program = (
        "import sys, coordinator.launch.cli; print([m for m in ('django', 'celery', 'torch', 'hivemind') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded == "[]\n"


def test_a_child_that_ends_while_the_launcher_stays_is_started_again(folder: RunFolder) -> None:
    lives = folder.path / "lives"

    def stop_after_three() -> None:
        if lives.exists() and lives.read_text().count("x") >= 3:
            supervisor.request_stop()

    with supervising(folder) as supervisor:
        supervisor.start(script(folder, "web", "echo x >> lives; test $(wc -l < lives) -ge 3 && exec sleep 600; exit 1"))
        with pytest.raises(StopRequested):
            supervisor.stay(stop_after_three)


def test_a_child_that_will_not_live_is_given_up(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.launch.supervisor.REVIVE_AFTER_S", 0.0)
    with supervising(folder) as supervisor:
        supervisor.start(script(folder, "web", "echo x >> lives; exit 3"))
        with pytest.raises(ChildFailed, match="web ended unexpectedly with exit status 3"):
            supervisor.stay()
    assert (folder.path / "lives").read_text().count("x") == 6
