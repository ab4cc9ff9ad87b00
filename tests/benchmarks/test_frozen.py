"""What the benchmark of frozen peers is told wrongly it says; stages that run side by side count each second once."""

from __future__ import annotations

import sys

import pytest

from benchmarks import frozen


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--cases", "well", "tired"], "no such case: tired"),
        (["--nodes", "3"], "--nodes: at least 8"),
        (["--crawls", "0"], "--crawls: at least one"),
        (["--json", "/no/such/folder/out.json"], "no such folder"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["frozen", *arguments])
    with pytest.raises(SystemExit):
        frozen.main()
    assert told in capsys.readouterr().err


def test_seconds_in_which_several_ran_count_once() -> None:
    assert frozen.covered([(1.0, 3.0), (2.0, 4.0), (6.0, 7.0)]) == pytest.approx(4.0)
    assert frozen.covered([(1.0, 5.0), (2.0, 3.0)]) == pytest.approx(4.0)
    assert frozen.covered([]) == 0
