"""Looking into a model over a swarm, and changing what goes on in it, is the same as doing so locally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.auto.causal_lm import DistributedCausalLM
from blockserver.client.inspect.lens import logit_lens
from swarm.errors import LocalError, RemoteError
from swarm.routing import Hop
from swarm.wire.spans import Span
from tests.blockserver.client.threaded import Swarm, handlers

IDS = torch.tensor([[5, 17, 42, 8], [9, 3, 33, 71]])
LEFT = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
GREEDY: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
STEER = torch.randn(32, generator=torch.Generator().manual_seed(5))

Whole = tuple[Path, PreTrainedModel]


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def steered(whole: PreTrainedModel, block: int) -> Any:
    """A hook that adds a vector to what enters the block, locally."""
    layer = whole.model.layers[block]
    return layer.register_forward_pre_hook(lambda _, args, kwargs: ((args[0] + STEER, *args[1:]), kwargs), with_kwargs=True)


def test_hidden_states_are_those_of_transformers(distributed: DistributedCausalLM, tiny: Whole) -> None:
    actual, expected = (model(IDS, output_hidden_states=True) for model in (distributed, tiny[1]))
    close(actual.logits, expected.logits)
    assert len(actual.hidden_states) == len(expected.hidden_states) == 7
    for state, known in zip(actual.hidden_states, expected.hidden_states, strict=True):
        close(state, known)


@pytest.mark.parametrize("mask", [LEFT, LEFT.flip(1)], ids=["left", "right"])
def test_padding_changes_nothing_for_the_tokens(mask: torch.Tensor, distributed: DistributedCausalLM, tiny: Whole) -> None:
    actual, expected = (model(IDS, attention_mask=mask, output_hidden_states=True) for model in (distributed, tiny[1]))
    for state, known in zip([actual.logits, *actual.hidden_states], [expected.logits, *expected.hidden_states], strict=True):
        close(state[mask.bool()], known[mask.bool()])


def test_entering_and_stopping_anywhere(distributed: DistributedCausalLM) -> None:
    hidden = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(1))
    blocks = distributed.blocks
    halfway = blocks[:3](hidden)
    close(blocks[3:](halfway), blocks(hidden))
    states = blocks[1:4].boundaries(hidden)
    assert len(states) == 4
    close(states[0], hidden)
    close(blocks[3](states[2]), states[3])
    with pytest.raises(LocalError, match="blocks 4:9 are not a run within 0:6"):
        blocks[4:9]
    with pytest.raises(LocalError, match="are not a run within 2:4"):
        blocks[2:4][1:3]


def test_an_edit_counts_in_forward_and_in_every_step_of_generate(distributed: DistributedCausalLM, tiny: Whole) -> None:
    plain = tiny[1].generate(IDS, **GREEDY)
    handle = steered(tiny[1], 3)
    try:
        expected, said = tiny[1](IDS).logits, tiny[1].generate(IDS, **GREEDY)
    finally:
        handle.remove()
    assert said.tolist() != plain.tolist()
    with distributed.editing({3: lambda hidden: hidden + STEER}):
        close(distributed(IDS).logits, expected)
        assert distributed.generate(IDS, **GREEDY).tolist() == said.tolist()
        assert distributed.generate(IDS, num_beams=1, attention_mask=torch.ones_like(IDS), **GREEDY).tolist() == said.tolist()
    assert distributed.generate(IDS, **GREEDY).tolist() == plain.tolist()


@pytest.mark.slow
def test_the_path_may_be_chosen(tiny: Whole) -> None:
    with handlers(tiny[0], Span(0, 6), Span(0, 4), Span(2, 6)) as servers:
        model = servers.model()
        fast, first, last = (server.peer_id for server in servers.servers)
        expected = tiny[1].generate(IDS, **GREEDY)
        assert model.blocks.route() == (Hop(fast, Span(0, 6)),)
        path = (Hop(first, Span(0, 3)), Hop(last, Span(3, 6)))
        with model.through(*path):
            assert model.blocks.route() == path
            with model.inference_session(max_length=16) as session:
                assert model.generate(IDS, **GREEDY).tolist() == expected.tolist()
                assert session.route == path
            servers.kill(servers.servers[2])
            with pytest.raises(RemoteError, match=last):
                model(IDS)
        close(model(IDS).logits, tiny[1](IDS).logits)


def test_the_lens_reads_what_is_known_at_each_boundary(distributed: DistributedCausalLM, tiny: Whole) -> None:
    rows = distributed.logit_lens(IDS[0], top=4)
    states = tiny[1](IDS[:1], output_hidden_states=True).hidden_states
    assert [row.boundary for row in rows] == list(range(7))
    for row, state in zip(rows, states, strict=True):
        # The last state of transformers has gone through the norm already.
        normed = state if row.boundary == 6 else tiny[1].model.norm(state)
        chances, tokens = tiny[1].lm_head(normed)[0, -1].softmax(-1).topk(4)
        assert list(row.tokens) == tokens.tolist()
        close(torch.tensor(row.chances), chances)
    assert rows[-1].tokens[0] == tiny[1].generate(IDS[:1], **GREEDY)[0, 4]


def test_the_lens_for_those_on_an_event_loop_says_the_same(distributed: DistributedCausalLM) -> None:
    rows = distributed.connection.run(logit_lens(distributed.remote, IDS[0].tolist(), top=3))
    expected = distributed.logit_lens(IDS[:1], top=3)
    assert [row.tokens for row in rows] == [row.tokens for row in expected]
    with distributed.editing({6: torch.zeros_like}):
        changed = distributed.logit_lens(IDS[0], top=3)
    assert [row.tokens for row in changed[:-1]] == [row.tokens for row in expected[:-1]]
    assert changed[-1].chances[0] == pytest.approx(1 / 96)


@pytest.mark.parametrize(
    ("ids", "top", "complaint"),
    [([], 5, "1 to 2,048 tokens, not 0"), ([5], 0, "1 to 96 tokens of a boundary"), ([5, 96], 5, "token 96 is not within")],
)
def test_a_lens_on_nothing_is_refused(ids: list[int], top: int, complaint: str, distributed: DistributedCausalLM) -> None:
    with pytest.raises(LocalError, match=complaint):
        distributed.connection.run(logit_lens(distributed.remote, ids, top))


def test_edits_are_checked_when_they_are_given(distributed: DistributedCausalLM, threaded: Swarm) -> None:
    with pytest.raises(LocalError, match="boundary 7 is not within 0 to 6"), distributed.editing({7: torch.neg}):
        pass
    assert not distributed.stops.edits
