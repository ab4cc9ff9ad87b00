"""Who decides how the model speaks: the request, then the operator, then the model's authors, then OpenAI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blockserver.gateway.asked import Asked, Prompt, read_chat
from blockserver.gateway.manner import FILE, Manner, recommended
from swarm.errors import LocalError


def asked(**said: Any) -> Asked:
    return Asked("m", Prompt(text="Once"), 8, **said)


def test_the_request_comes_before_the_operator_who_comes_before_the_authors(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"temperature": 0.2, "top_p": 0.9, "top_k": 50, "eos_token_id": 2}))
    manner = Manner(temperature=0.6).otherwise(recommended(tmp_path))
    silent = manner.sampling(asked())
    assert (silent.temperature, silent.top_p, silent.top_k) == (0.6, 0.9, 50)
    told = manner.sampling(asked(temperature=0.0, top_k=0))
    assert (told.temperature, told.top_p, told.top_k) == (0.0, 0.9, 0), "a zero is a word, too"


def test_where_nobody_says_anything_it_is_as_openai(tmp_path: Path) -> None:
    how = Manner().otherwise(recommended(tmp_path)).sampling(asked(seed=3))
    assert (how.temperature, how.top_p, how.top_k, how.seed, how.max_new_tokens) == (1.0, 1.0, 0, 3, 8)


@pytest.mark.parametrize("content", ['{"temperature": "hot"}', '{"top_p": 2}', '{"top_k": -1}', "[]", "{", '{"top_p": NaN}'])
def test_a_file_that_cannot_be_right_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(LocalError, match=FILE):
        recommended(tmp_path)


def test_what_a_request_does_not_say_stays_open() -> None:
    read = read_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "top_p": 0.5}).encode())
    assert (read.temperature, read.top_p, read.top_k) == (None, 0.5, None)
