"""Secrets are private, state is never half written, and one launcher at a time holds the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.launch.follow import Follower
from coordinator.launch.run_folder import kept_secret, locked, read_json, write_json
from swarm.errors import LocalError


def test_a_secret_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = kept_secret(path)
    assert len(first) >= 32
    assert kept_secret(path) == first
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_empty_secret_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch()
    assert kept_secret(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_state_is_replaced_as_a_whole_and_bad_state_reads_as_none(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    assert read_json(path) is None
    write_json(path, {"a": 1})
    before = path.stat().st_ino
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert path.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [path]
    path.write_text('{"a": ')
    assert read_json(path) is None


def test_the_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(LocalError, match=rf"already running \(pid {os.getpid()}\)"),
        locked(tmp_path / "run"),
    ):
        pass
    with locked(tmp_path / "run") as folder:
        assert folder.logs.is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LocalError, match=r"Cannot write to the run folder .*file/run: Not a directory"),
        locked(tmp_path / "file/run"),
    ):
        pass


def test_a_log_is_followed_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    follower = Follower(log)
    assert follower.new_lines() == []
    with log.open("wb", buffering=0) as out:
        out.write(b"one\ntw")
        assert follower.new_lines() == ["one"]
        out.write("o ä\n\n50 %\r100 %\r\nlast".encode())
        assert follower.new_lines() == ["two ä", "50 %", "100 %"]
        assert follower.new_lines() == []
