"""The set-up's scripts say in one sentence what is missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from coordinator.launch.run_folder import PROJECT

SCRIPTS = PROJECT / "scripts"


def run(script: str, *words: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(SCRIPTS / script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(path)})


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_without_a_python_it_says_which_one_is_needed(tmp_path: Path) -> None:
    done = run("make-venv", "env", path=tmp_path)
    assert done.returncode == 1
    assert "Sepal needs Python 3.11 or later; neither python3.11 nor a recent python3 is on PATH" in done.stderr


def test_a_named_python_that_is_too_old_is_refused(tmp_path: Path) -> None:
    program(tmp_path, "oldpython", '[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1')
    done = run("make-venv", "env", "oldpython", path=tmp_path)
    assert done.returncode == 1
    assert "PYTHON=oldpython is Python 3.9.2; Sepal needs Python 3.11 or later." in done.stderr


def test_the_first_suitable_python_makes_the_environment(tmp_path: Path) -> None:
    program(tmp_path, "python3.11", '[ "$1" = -m ] && echo "$@"\nexit 0')
    done = run("make-venv", "env", path=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "-m venv env"


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_any_chromium_on_path_will_do(tmp_path: Path, name: str) -> None:
    program(tmp_path, name, "exit 9")
    assert run("ensure-chromium", path=tmp_path).returncode == 0


def test_an_ordinary_user_is_told_what_to_install(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 1000")
    done = run("ensure-chromium", path=tmp_path)
    assert done.returncode == 1
    assert "sudo apt-get install chromium" in done.stderr


def test_root_gets_chromium_installed(tmp_path: Path) -> None:
    program(tmp_path, "id", "echo 0")
    program(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/asked')
    assert run("ensure-chromium", path=tmp_path).returncode == 0
    assert (tmp_path / "asked").read_text().splitlines() == ["-qq update", "-qq install -y --no-install-recommends chromium"]


def test_make_alone_prints_what_can_be_made() -> None:
    said = subprocess.run(
        ["make", "--no-print-directory"], cwd=PROJECT, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    targets = ["help", "demo", "kill", "staff", "test", "lint", "format", "clean"]
    assert [line.split()[1] for line in said.stdout.splitlines()] == targets
