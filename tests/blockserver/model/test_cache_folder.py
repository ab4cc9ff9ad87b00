"""The cache folder stays below its limit, gives up what was used longest ago, and nothing that is in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from blockserver.model.cache_folder import CacheFolder, Hold
from swarm.errors import LocalError

SIZE = 1_000


def weights(folder: Path, *names: str) -> list[Path]:
    """Files, the first used longest ago."""
    files = [folder / "model" / f"{name}.safetensors" for name in names]
    for age, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(SIZE))
        os.utime(file, (1_000 + age, 1_000 + age))
    return files


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    files = weights(tmp_path, "a", "b", "c")
    cache = CacheFolder(tmp_path, 3 * SIZE)
    hold = Hold()
    assert hold.take(files[0])  # used just now
    hold.release()
    cache.make_room(SIZE)
    assert [file.exists() for file in files] == [True, False, True]
    assert cache.used() == 2 * SIZE


def test_unfinished_downloads_count_and_go_too_but_for_the_one_going_on(tmp_path: Path) -> None:
    (kept,) = weights(tmp_path, "kept")
    stale, going_on = (tmp_path / f"{name}.safetensors.unfinished" for name in ("stale", "going-on"))
    for file in (stale, going_on):
        file.write_bytes(bytes(SIZE))
        os.utime(file, (1, 1))
    CacheFolder(tmp_path, 3 * SIZE).make_room(SIZE, [going_on])
    assert (kept.exists(), stale.exists(), going_on.exists()) == (True, False, True)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (other := tmp_path / "notes.txt").write_bytes(bytes(5 * SIZE))
    CacheFolder(tmp_path, SIZE).make_room(SIZE)
    assert other.exists()


def test_what_is_in_use_stays_and_the_lack_is_said(tmp_path: Path) -> None:
    (file,) = weights(tmp_path, "a")
    hold = Hold()
    hold.take(file)
    with pytest.raises(LocalError, match="do not fit into the cache folder"):
        CacheFolder(tmp_path, SIZE).make_room(SIZE)
    assert file.exists()
    hold.release()
    CacheFolder(tmp_path, SIZE).make_room(SIZE)
    assert not file.exists()


def test_a_file_that_is_gone_cannot_be_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that another process evicts, or replaces, between the opening and the locking."""
    hold = Hold()
    assert not hold.take(tmp_path / "never.safetensors")
    (file,) = weights(tmp_path, "a")
    monkeypatch.setattr("fcntl.flock", lambda *_: file.unlink())
    assert not hold.take(file)
    (file,) = weights(tmp_path, "b")
    monkeypatch.setattr("fcntl.flock", lambda *_: os.replace(_copied(file), file))
    assert not hold.take(file)


def _copied(file: Path) -> Path:
    copy = file.with_name("copy")
    copy.write_bytes(file.read_bytes())
    return copy


IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from blockserver.model.cache_folder import CacheFolder, Hold
hold = Hold()
print(hold.take(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_what_another_process_uses_stays_until_that_process_ends(tmp_path: Path) -> None:
    (file,) = weights(tmp_path, "a")
    user = subprocess.Popen(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert user.stdout is not None and user.stdout.readline() == "True\n"
    with pytest.raises(LocalError):
        CacheFolder(tmp_path, SIZE).make_room(SIZE)
    assert file.exists()
    user.kill()
    user.communicate()
    CacheFolder(tmp_path, SIZE).make_room(SIZE)
    assert not file.exists()
