"""A figure measured once is used again until the machine, the software or the time has changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from blockserver.serving.measured import FILE_NAME, MAX_AGE_S, MAX_ENTRIES, NETWORK_MAX_AGE_S, MeasuredRates, Setup

SETUP = Setup("tiny", "float32", "none", "AMD EPYC", 2, "sepal 0.1.0, torch 2.13.0")
NOW = 1_800_000_000.0


def test_a_figure_is_there_after_a_restart(tmp_path: Path) -> None:
    MeasuredRates(tmp_path / "new").keep_compute(SETUP, 100.0, 2000.0, NOW)
    assert MeasuredRates(tmp_path / "new").compute(SETUP, NOW + 60) == (100.0, 2000.0)


def test_how_long_a_block_loads_is_kept_beside_how_fast_it_computes(tmp_path: Path) -> None:
    rates = MeasuredRates(tmp_path)
    assert rates.load_s_per_block(SETUP, NOW) is None
    rates.keep_load(SETUP, 12.5, NOW)
    rates.keep_compute(SETUP, 100.0, 2000.0, NOW)
    assert MeasuredRates(tmp_path).load_s_per_block(SETUP, NOW + 60) == 12.5
    assert rates.load_s_per_block(replace(SETUP, quant_type="int8"), NOW) is None
    assert rates.load_s_per_block(SETUP, NOW + MAX_AGE_S) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "other"},
        {"dtype": "bfloat16"},
        {"quant_type": "int8"},
        {"device": "RTX 4090"},
        {"threads": 8},
        {"software": "x"},
    ],
)
def test_whatever_it_depends_on_makes_it_another_figure(tmp_path: Path, changed: dict[str, object]) -> None:
    rates = MeasuredRates(tmp_path)
    rates.keep_compute(SETUP, 100.0, 2000.0, NOW)
    assert rates.compute(replace(SETUP, **changed), NOW) is None  # type: ignore[arg-type]


def test_figures_grow_old_and_none_comes_from_the_future(tmp_path: Path) -> None:
    rates = MeasuredRates(tmp_path)
    rates.keep_compute(SETUP, 100.0, 2000.0, NOW)
    rates.keep_network(50.0, 64, NOW)
    assert rates.compute(SETUP, NOW + MAX_AGE_S - 1) is not None
    assert rates.compute(SETUP, NOW + MAX_AGE_S) is None
    assert rates.network(64, NOW + NETWORK_MAX_AGE_S - 1) == 50.0
    assert rates.network(128, NOW) == 25.0
    assert rates.network(64, NOW + NETWORK_MAX_AGE_S) is None
    assert rates.compute(SETUP, NOW - 1) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"%s": 3}', '{"%s": {"measured_at": 1800000000, "inference_rps": "x", "forward_rps": NaN}}', "\x00"],
)
def test_a_broken_file_is_no_figure_and_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text.replace("%s", SETUP.key))
    rates = MeasuredRates(tmp_path)
    assert rates.compute(SETUP, NOW) is None
    rates.keep_compute(SETUP, 1.0, 2.0, NOW)
    assert rates.compute(SETUP, NOW) == (1.0, 2.0)


def test_the_file_stays_small(tmp_path: Path) -> None:
    rates = MeasuredRates(tmp_path)
    for number in range(MAX_ENTRIES + 10):
        rates.keep_compute(replace(SETUP, model=str(number)), 1.0, 2.0, NOW + number)
    assert len(json.loads((tmp_path / FILE_NAME).read_text())) == MAX_ENTRIES
    assert rates.compute(replace(SETUP, model="0"), NOW + 100) is None


def test_a_folder_that_cannot_be_written_costs_only_the_keeping(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    MeasuredRates(tmp_path / "file" / "below").keep_compute(SETUP, 1.0, 2.0, NOW)
    assert "the next start measures again" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    rates = MeasuredRates(None)
    rates.keep_compute(SETUP, 1.0, 2.0, NOW)
    assert rates.compute(SETUP, NOW) is None
