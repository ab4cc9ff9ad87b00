"""`make staff`: a log-in for the site that runs from this run folder, with no password that anybody could know before."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from coordinator.launch.cli import main
from coordinator.launch.demo import Demo, Plan, _banner
from coordinator.launch.run_folder import RunFolder
from coordinator.launch.staff import KEPT, keep_environment
from tests.sites import database_url


def test_without_a_site_there_is_nobody_to_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["staff", "ada", "--run-dir", str(tmp_path)]) == 1
    assert "No site has run with the run folder" in capsys.readouterr().err


def test_what_is_kept_of_the_site_is_for_its_owner_only(tmp_path: Path) -> None:
    keep_environment(RunFolder(tmp_path), {"DATABASE_URL": "postgres://x", "HOME": "/home", "SEPAL_TOKEN": "secret"})
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text() and "SEPAL_TOKEN" not in KEPT


@pytest.mark.django_db(transaction=True)
def test_a_log_in_is_made_in_the_running_site_s_database(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep_environment(RunFolder(tmp_path), {**os.environ, "DATABASE_URL": database_url(), "SEPAL_SECRET_KEY": "for this test"})
    assert main(["staff", "grace", "--made-up", "--run-dir", str(tmp_path)]) == 0
    password = re.search(r"The password of grace, shown this once: (\S+)", capfd.readouterr().out)
    assert password is not None and User.objects.get(username="grace").check_password(password[1])


def test_a_database_that_is_gone_is_said_in_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keep_environment(RunFolder(tmp_path), {**os.environ, "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"})
    assert main(["staff", "grace", "--made-up", "--run-dir", str(tmp_path)]) == 1
    said = capfd.readouterr().err
    assert "The database does not answer" in said and "Traceback" not in said


def test_the_demo_says_how_to_get_into_the_admin_and_gives_no_password(tmp_path: Path) -> None:
    plan = Plan(model=tmp_path, port=8000, servers=1, blocks=1, crawl_interval_s=10)
    supervisor: Any = None
    said = _banner(Demo(supervisor, RunFolder(tmp_path), plan, 8000, gateway=""))
    assert "make staff ARGS=YOU" in said and "http://127.0.0.1:8000/admin/" in said
