"""One cache over several calls: what was said is not computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.auto.causal_lm import DistributedCausalLM
from swarm.errors import LocalError
from swarm.routing import Hop
from swarm.wire.spans import Span
from tests.blockserver.client.threaded import Swarm, handlers

IDS = torch.tensor([[5, 17, 42, 8], [9, 3, 33, 71]])
MORE = torch.tensor([[7, 11], [13, 4]])
THREE: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}

Whole = tuple[Path, PreTrainedModel]


def test_calls_go_on_where_the_last_one_ended(distributed: DistributedCausalLM, tiny: Whole) -> None:
    with distributed.inference_session(max_length=32) as session:
        first = distributed.generate(IDS, **THREE)
        assert session.position == 6
        second = distributed.generate(MORE, **THREE)
        third = distributed.generate(None, **THREE)
        assert session.position == 14
        assert [hop.span for hop in session.route] == [Span(0, 2), Span(2, 4), Span(4, 6)]
    expected = tiny[1].generate(IDS, **THREE)
    assert first.tolist() == expected.tolist()
    expected = tiny[1].generate(torch.cat([expected, MORE], dim=1), **THREE)
    assert second.tolist() == expected[:, 7:].tolist()
    assert session.output_ids is not None
    expected = tiny[1].generate(expected, **THREE)
    assert session.output_ids.tolist() == expected.tolist()
    assert third.tolist() == expected[:, -3:].tolist()


def test_only_what_is_new_is_sent(distributed: DistributedCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    with distributed.inference_session(max_length=32) as session:
        sent: list[int] = []
        walk = session.cache.walk
        monkeypatch.setattr(session.cache, "walk", lambda hidden, *rest: sent.append(hidden.shape[1]) or walk(hidden, *rest))
        distributed.generate(IDS, **THREE)
        distributed.generate(MORE, **THREE)
    assert sent == [4, 1, 1, 3, 1, 1]


def test_padding_is_remembered(distributed: DistributedCausalLM, tiny: Whole) -> None:
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    session = distributed.inference_session(max_length=32)
    distributed.generate(IDS, attention_mask=mask, session=session, **THREE)
    distributed.generate(MORE, session=session, **THREE)
    alone = tiny[1].generate(IDS[:1, 2:], **THREE)
    alone = tiny[1].generate(torch.cat([alone, MORE[:1]], dim=1), **THREE)
    assert session.output_ids is not None and session.output_ids[0, 2:].tolist() == alone[0].tolist()
    session.close()


def test_a_call_that_was_broken_off_is_as_if_it_had_not_been(
    distributed: DistributedCausalLM, tiny: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    def stop(ids: torch.Tensor, *_: object) -> torch.Tensor:
        if ids.shape[1] > 8:
            raise Stop
        return torch.zeros(2, dtype=torch.bool)

    with distributed.inference_session(max_length=32) as session:
        distributed.generate(IDS, **THREE)
        with pytest.raises(Stop):
            distributed.generate(None, stopping_criteria=[stop], **THREE)
        assert session.position > 6
        distributed.generate(MORE, **THREE)
        expected = tiny[1].generate(torch.cat([tiny[1].generate(IDS, **THREE), MORE], dim=1), **THREE)
        assert session.output_ids is not None and session.output_ids.tolist() == expected.tolist()


def test_forward_may_use_its_cache(distributed: DistributedCausalLM, tiny: Whole) -> None:
    with distributed.inference_session(max_length=16) as session:
        distributed(IDS, cache=session.cache)
        step = distributed(MORE, cache=session.cache).logits
    torch.testing.assert_close(step, tiny[1](torch.cat([IDS, MORE], dim=1)).logits[:, 4:], atol=1e-4, rtol=0)


def test_hidden_states_may_be_stepped_through_some_of_the_blocks(distributed: DistributedCausalLM) -> None:
    """As Petals' users know it."""
    hidden = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(1))
    blocks = distributed.transformer.h[1:5]
    expected = blocks(hidden)
    with blocks.inference_session(max_length=8) as session:
        first = session.step(hidden[:, :4])
        session.step(hidden[:, :2])
        assert session.position == 6
        session.rollback(4)
        second = session.step(hidden[:, 4:])
        torch.testing.assert_close(torch.cat([first, second], dim=1), expected, atol=1e-4, rtol=0)
        assert [hop.span for hop in session.route] == [Span(1, 2), Span(2, 4), Span(4, 5)]


@pytest.mark.slow
def test_a_server_that_dies_between_two_calls_is_not_noticed(tiny: Whole) -> None:
    with handlers(tiny[0], Span(0, 3), Span(3, 6), Span(3, 6)) as servers:
        model = servers.model()
        with model.inference_session(max_length=32) as session:
            model.generate(IDS, **THREE)
            assert session.route[-1] == Hop(servers.servers[1].peer_id, Span(3, 6))
            servers.kill(servers.servers[1])
            model.generate(MORE, **THREE)
            assert session.recoveries == 1
            assert session.route[-1].peer_id == servers.servers[2].peer_id
        expected = tiny[1].generate(torch.cat([tiny[1].generate(IDS, **THREE), MORE], dim=1), **THREE)
        assert session.output_ids is not None and session.output_ids.tolist() == expected.tolist()


def test_what_makes_no_sense_is_refused(distributed: DistributedCausalLM, threaded: Swarm) -> None:
    with pytest.raises(LocalError, match="1 to 8,192 tokens"):
        distributed.inference_session(max_length=9_000)
    with distributed.inference_session(max_length=16) as session:
        with pytest.raises(LocalError, match="at least one token"):
            distributed.generate(None, **THREE)
        with pytest.raises(LocalError, match="open already"), distributed.inference_session(max_length=4):
            pass
        with pytest.raises(LocalError, match="num_beams above 1"):
            distributed.generate(IDS, num_beams=2, **THREE)
        distributed.generate(IDS, **THREE)
        with pytest.raises(LocalError, match="holds 2 rows"):
            distributed.generate(MORE[:1], **THREE)
        with pytest.raises(LocalError, match="boundaries at which it was begun"):
            distributed.generate(MORE, output_hidden_states=True, return_dict_in_generate=True, **THREE)
        with pytest.raises(LocalError, match="opened for 16 tokens"):
            distributed.generate(MORE, **{**THREE, "max_new_tokens": 20})
    with pytest.raises(LocalError, match="cache was closed"):
        distributed.generate(MORE, session=session, **THREE)
