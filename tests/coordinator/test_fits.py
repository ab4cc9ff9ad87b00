"""How many blocks fit: figures of well-known models, and honesty about the others."""

from __future__ import annotations

import pytest

from blockserver.config import ServeConfig
from blockserver.model.capacity import SPARE_SHARE
from coordinator import fits
from coordinator.fits import fit, shape_of


@pytest.mark.parametrize(
    ("name", "blocks", "billions"),
    [
        ("https://example.org/meta-llama/Meta-Llama-3.1-405B-Instruct", 126, 401.5),
        ("Llama-2-70b-chat-hf", 80, 68.4),
        ("mistralai/Mixtral-8x7B-v0.1", 32, 46.4),
        ("SmolLM2-135M-Instruct", 30, 0.106),
    ],
)
def test_the_blocks_of_known_models_add_up_to_the_models_size_without_its_vocabulary(
    name: str, blocks: int, billions: float
) -> None:
    shape = shape_of(name, blocks)
    assert shape is not None
    assert shape.parameters * blocks / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_name_alone_is_not_believed_where_the_number_of_blocks_differs() -> None:
    assert shape_of("Llama-2-70b-pruned", 40) is None


def test_a_known_model_counts_weights_and_cache() -> None:
    found = fit("Meta-Llama-3.1-405B-hf", 126, 24.0, "nf4")
    assert found.num_blocks == 11
    assert found.words == (
        "Fits about 11 blocks: 18.8 GB of 24 GB; each takes 1.7 GB of weights and 17 MB of cache."
        " Reckoned from this model's known shape."
    )


def test_a_models_name_may_tell_its_size() -> None:
    found = fit("Some-New-32B-Chat", 64, 24.0, "bfloat16")
    assert found.num_blocks == 19 and found.source == "the number of parameters in its name"
    assert "cache not counted" in found.words


@pytest.mark.parametrize("name", ["Model-8x22b", "7billion", "Sub", "a1b2c3"])
def test_what_only_looks_like_a_size_is_not_taken_for_one(name: str) -> None:
    found = fit(name, 10, 24.0, "bfloat16")
    assert found.source != "the number of parameters in its name"


def test_the_visitors_figure_beats_ours() -> None:
    assert fit("Llama-2-70b", 80, 24.0, "int8", parameters_b=8.0).source == "the number of parameters that you gave"


def test_a_card_that_is_too_small_is_told_so() -> None:
    found = fit("Meta-Llama-3.1-405B", 126, 4.0, "bfloat16")
    assert found.num_blocks == 0
    assert "Not even one block fits: it takes 6.4 GB, and of 4 GB 3.2 GB can be used." in found.words


def test_never_more_than_the_whole_model() -> None:
    found = fit("SmolLM2-135M", 30, 24.0, "bfloat16")
    assert found.num_blocks == 30 and "(the whole model)" in found.words


def test_the_page_reckons_with_the_servers_cache_and_leaves_at_least_as_much_free() -> None:
    assert fits.RESERVE_SHARE > SPARE_SHARE
    assert ServeConfig.cache_tokens == fits.CACHE_TOKENS
