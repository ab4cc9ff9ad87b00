"""The fastest device is taken unless the operator names another, which must be there."""

from __future__ import annotations

import pytest
import torch

from blockserver.model.compute_device import choose_device
from swarm.errors import LocalError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    gpus, apple = request.param
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: apple)


@pytest.mark.parametrize(
    ("machine", "best"),
    [((2, False), "cuda"), ((0, True), "mps"), ((0, False), "cpu"), ((1, True), "cuda")],
    indirect=["machine"],
)
def test_the_fastest_kind_is_taken(machine: None, best: str) -> None:
    assert choose_device() == torch.device(best)


@pytest.mark.parametrize("machine", [(2, False)], indirect=True)
def test_the_operators_choice_wins(machine: None) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("machine", [(2, False)], indirect=True)
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("cuda:2", "this machine has 2 of that kind, counted from 0"),
        ("mps", "this machine has none that torch"),
        ("xpu", "devices of the kind xpu are not supported"),
        ("gpu", "choose one of cuda, mps, cpu"),
    ],
)
def test_what_is_not_there_is_refused(machine: None, wanted: str, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        choose_device(wanted)
