"""`sepal chat`: one question, or a conversation, answered by the swarm, token by token. Text to stdout, the rest to stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from blockserver.client.discovery import RouteFinder
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import GREEDY, Sampling
from blockserver.client.session import Session
from blockserver.model.facts import read_facts
from swarm.dht.node import NodeConfig, start_node
from swarm.errors import LocalError
from swarm.routing import Route

Say = Callable[[str], None]


@dataclass(frozen=True)
class ChatConfig:
    model: Path
    initial_peers: tuple[str, ...]
    prefix: str | None = None
    sampling: Sampling = GREEDY


@dataclass(frozen=True)
class Answer:
    """`seconds_to_first` counts from the question; `tokens_per_second` from the first token to the last."""

    text: str
    tokens: tuple[int, ...]
    route: Route
    seconds_to_first: float
    tokens_per_second: float
    recoveries: int


async def ask(config: ChatConfig, question: str, show: Say) -> Answer:
    """The swarm's answer, each piece of text given to `show` as it comes. Raises MissingBlocks where blocks have no server."""
    facts = read_facts(config.model)
    tokenizer = load_tokenizer(config.model)
    node = await start_node(NodeConfig(initial_peers=config.initial_peers, client_mode=True))
    try:
        prefix = config.prefix or facts.prefix
        finder = RouteFinder(node, prefix, facts.num_blocks)
        async with RemoteModel.load(config.model, node.p2p, finder, prefix=prefix) as model:
            prompt = encode_question(tokenizer, question)
            async with model.session(len(prompt) + config.sampling.max_new_tokens) as session:
                return await _stream(model, session, tokenizer, prompt, config.sampling, show)
    finally:
        await node.stop()


async def _stream(
    model: RemoteModel, session: Session, tokenizer: Any, prompt: list[int], sampling: Sampling, show: Say
) -> Answer:
    asked = time.monotonic()
    first = last = asked
    tokens: list[int] = []
    shown = ""
    async for token in model.generate(prompt, sampling, session):
        last = time.monotonic()
        first = last if not tokens else first
        tokens.append(token)
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        # A character may take several tokens; until it is whole its bytes decode to a replacement character.
        if not text.endswith("�"):
            show(text[len(shown) :])
            shown = text
    rate = (len(tokens) - 1) / (last - first) if len(tokens) > 1 else 0.0
    return Answer(shown, tuple(tokens), session.route, first - asked, rate, session.recoveries)


def load_tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise LocalError(f"{folder} holds no tokenizer that can be read: {str(error).splitlines()[0][:200]}") from error


def encode_question(tokenizer: Any, question: str) -> list[int]:
    """As a turn of a chat where the model has a chat template, as plain text otherwise."""
    if not question.strip():
        raise LocalError("the question is empty")
    if getattr(tokenizer, "chat_template", None):
        turns = [{"role": "user", "content": question}]
        encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])
    return list(tokenizer(question)["input_ids"])


def describe(answer: Answer) -> str:
    """The route and the speed, in one line."""
    route = " → ".join(f"{hop.span} …{hop.peer_id[-6:]}" for hop in answer.route)
    recovered = f" · went on after losing {answer.recoveries} server(s)" if answer.recoveries else ""
    speed = f"first token {answer.seconds_to_first:.1f} s, then {answer.tokens_per_second:.1f} tok/s"
    return f"[{len(answer.tokens)} tokens · {speed} · {route}{recovered}]"
