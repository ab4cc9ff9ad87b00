"""Which token comes next."""

from __future__ import annotations

import pytest
import torch

from blockserver.client.sampling import GREEDY, Sampling, choose, probabilities
from swarm.errors import LocalError

LOGITS = torch.tensor([1.0, 3.0, 2.0, -1.0])


def test_without_temperature_the_likeliest_token_is_taken() -> None:
    assert choose(LOGITS, GREEDY, torch.Generator()) == 1


def test_temperature_divides_the_logits() -> None:
    torch.testing.assert_close(probabilities(LOGITS, Sampling(temperature=2.0)), (LOGITS / 2).softmax(-1))


def test_top_k_leaves_the_k_likeliest_in_proportion() -> None:
    chances = probabilities(LOGITS, Sampling(temperature=1.0, top_k=2))
    torch.testing.assert_close(chances, torch.tensor([0.0, *LOGITS[1:3].softmax(-1).tolist(), 0.0]))


def test_top_p_leaves_the_fewest_that_reach_the_mass() -> None:
    """The likeliest has 0.66 and the next 0.24: for 0.7 both are needed, for 0.6 the first is enough."""
    kept = probabilities(LOGITS, Sampling(temperature=1.0, top_p=0.7)).nonzero().flatten().tolist()
    assert kept == [1, 2]
    assert probabilities(LOGITS, Sampling(temperature=1.0, top_p=0.6)).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_the_same_seed_draws_the_same_tokens_and_another_does_not() -> None:
    flat = torch.zeros(1000)

    def drawn(seed: int) -> list[int]:
        how = Sampling(temperature=1.0, seed=seed)
        source = how.generator()
        return [choose(flat, how, source) for _ in range(5)]

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": 0},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_what_makes_no_sense_is_the_callers_fault(wrong: dict[str, float]) -> None:
    with pytest.raises(LocalError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]
