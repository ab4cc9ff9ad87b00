"""Only a process that is certainly a server of the running demo is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.launch import kernel
from coordinator.launch.kill import held_spans, kill_one
from coordinator.launch.run_folder import RunFolder, write_json
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.launch.conftest import LIMIT_S


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    program = "import signal; print(flush=True); signal.pause()"
    serving = subprocess.Popen([sys.executable, "-c", program, "serve"], stdout=subprocess.PIPE)
    # For a moment after it was started the kernel does not say with which words.
    assert serving.stdout is not None and serving.stdout.readline()
    yield serving
    serving.kill()
    serving.wait(LIMIT_S)
    serving.stdout.close()


def record(folder: Path, pid: int, **changes: Any) -> None:
    known = kernel.mark(pid)
    assert known is not None
    server = {"name": "server-1", "pid": pid, "started": known.started, "peer_id": "QmOneRcvFJg", "span": [0, 12]}
    write_json(RunFolder(folder).demo, {"site": "http://127.0.0.1:1", "servers": [{**server, **changes}]})


@pytest.mark.parametrize("number", [None, 1])
def test_a_server_is_killed_and_named(
    tmp_path: Path, process: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str], number: int | None
) -> None:
    record(tmp_path, process.pid)
    kill_one(tmp_path, number)
    assert process.wait(LIMIT_S) == -9
    assert capsys.readouterr().out.startswith(f"Killed server-1 (pid {process.pid}, …RcvFJg): ")


def test_a_later_process_with_the_same_pid_is_spared(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    record(tmp_path, process.pid, started=1)
    with pytest.raises(LocalError, match="has ended already"):
        kill_one(tmp_path, 1)
    assert process.poll() is None


def test_a_number_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    record(tmp_path, process.pid)
    with pytest.raises(LocalError, match="no running server-7; there are: server-1"):
        kill_one(tmp_path, 7)
    assert process.poll() is None


def test_without_a_demo_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="Start one with: make demo"):
        kill_one(tmp_path, None)


OWN: list[dict[str, Any]] = [{"peer_id": "QmA", "span": [0, 12]}, {"peer_id": "QmB", "span": None}]


def test_spans_are_the_sites_where_it_answers() -> None:
    seen = [
        {"peer_id": "QmA", "state": "online", "start": 6, "end": 18},
        {"peer_id": "QmX", "state": "offline", "start": 0, "end": 9},
    ]
    answer = {"items": [{"servers": []}, {"servers": seen}]}
    assert held_spans(OWN, answer) == {"QmA": Span(6, 18)}
    just_online = {"peer_id": "QmNew", "span": [0, 9]}
    assert held_spans([*OWN, just_online], answer) == {"QmA": Span(6, 18), "QmNew": Span(0, 9)}, "the next check sees it"


@pytest.mark.parametrize("answer", [None, [], {"items": []}, {"items": [{"servers": []}]}])
def test_spans_are_the_servers_own_words_otherwise(answer: Any) -> None:
    assert held_spans(OWN, answer) == {"QmA": Span(0, 12)}
