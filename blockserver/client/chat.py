"""A conversation with a model whose blocks are out there: questions in, text out as it comes.

One session is kept over all turns: what it holds already is not computed again, and what differs from it is rolled back. Knows
tokenizers and chat templates; not terminals.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from blockserver.client.audit import Audit
from blockserver.client.discovery import RouteFinder
from blockserver.client.drafts import Drafts, PromptLookup, SmallModel, common_length
from blockserver.client.model import RemoteModel
from blockserver.client.notes import Notes
from blockserver.client.sampling import GREEDY, Sampling
from blockserver.client.session import Session
from blockserver.model.facts import read_facts
from blockserver.wire.protocol import MAX_LENGTH
from swarm.dht.node import NodeConfig, start_node
from swarm.errors import LocalError
from swarm.routing import Route

Say = Callable[[str], None]

SHORTEST_SESSION = 1_024
"""Tokens for which servers reserve cache at first; a conversation that grows beyond takes twice as much each time."""
AUDIT_WITHIN_S = 10.0
"""At the end of an answer an audit that runs may still take so long."""


@dataclass(frozen=True)
class ChatConfig:
    """`drafts`: `lookup` guesses from the text so far, `none` does not guess, a folder holds a small model that does."""

    model: Path
    initial_peers: tuple[str, ...]
    prefix: str | None = None
    sampling: Sampling = GREEDY
    push: bool = True
    drafts: str = "lookup"
    audit_share: float = 0.0
    monitor: str | None = None
    """Address of a Sepal site, named where blocks are missing."""
    allowed: tuple[str, ...] = ()
    """Peer ids; empty means all."""
    blocked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Audit(self.audit_share)


@dataclass(frozen=True)
class Answer:
    """`seconds_to_first` counts from the question; `tokens_per_second` from the first token to the last."""

    text: str
    tokens: tuple[int, ...]
    route: Route
    seconds_to_first: float
    tokens_per_second: float
    recoveries: int
    audit: str = ""


@dataclass
class Conversation:
    """Turns so far, and the session that holds them. `close` it."""

    model: RemoteModel
    tokenizer: Any
    sampling: Sampling = GREEDY
    push: bool = True
    drafts: Drafts | None = None
    audit: Audit | None = None
    turns: list[dict[str, str]] = field(default_factory=list)
    _session: Session | None = field(default=None, init=False)
    _held: list[int] = field(default_factory=list, init=False)

    async def ask(self, question: str, show: Say) -> Answer:
        """Each piece of the answer goes to `show` as it comes. An answer that is cancelled counts as far as it was said.

        Raises MissingBlocks where blocks have no server; the question is then not part of the conversation.
        """
        if not question.strip():
            raise LocalError("the question is empty")
        turns = [*self.turns, {"role": "user", "content": question}]
        ids = encode_turns(self.tokenizer, turns)
        session = await self._session_for(len(ids) + self.sampling.max_new_tokens)
        kept = min(common_length(self._held, ids), len(ids) - 1)
        session.rollback(min(kept, session.position))
        kept = session.position
        reader = _Reader(self.tokenizer, show)
        recovered = session.recoveries
        try:
            async for token in self.model.generate(ids[kept:], self.sampling, session, drafts=self.drafts, before=ids[:kept]):
                reader.take(token)
        finally:
            self._held = [*ids, *reader.tokens][: session.position]
            if reader.tokens:
                self.turns = [*turns, {"role": "assistant", "content": reader.shown}]
        said = ""
        if self.audit is not None:
            await self.audit.finish(AUDIT_WITHIN_S)
            said = self.audit.in_words()
        return reader.answer(session, session.recoveries - recovered, said)

    @property
    def route(self) -> Route:
        return self._session.route if self._session else ()

    async def begin_anew(self) -> None:
        self.turns = []
        await self.close()

    async def close(self) -> None:
        session, self._session, self._held = self._session, None, []
        if session is not None:
            await session.close()

    async def _session_for(self, tokens: int) -> Session:
        if tokens > MAX_LENGTH:
            raise LocalError(f"the conversation would take {tokens:,} tokens, a session holds {MAX_LENGTH:,}: begin a new one")
        if self._session is None or self._session.max_length < tokens:
            await self.close()
            length = min(max(SHORTEST_SESSION, 1 << (tokens - 1).bit_length()), MAX_LENGTH)
            self._session = self.model.session(length, push=self.push, audit=self.audit)
        return self._session


class _Reader:
    """Tokens as they come -> text as it can be shown, and when."""

    def __init__(self, tokenizer: Any, show: Say) -> None:
        self.tokens: list[int] = []
        self.shown = ""
        self._tokenizer, self._show = tokenizer, show
        self._asked = self._first = self._last = time.monotonic()

    def take(self, token: int) -> None:
        self._last = time.monotonic()
        if not self.tokens:
            self._first = self._last
        self.tokens.append(token)
        text = self._tokenizer.decode(self.tokens, skip_special_tokens=True)
        # A character may take several tokens; until it is whole its bytes decode to a replacement character.
        if not text.endswith("\ufffd"):
            self._show(text[len(self.shown) :])
            self.shown = text

    def answer(self, session: Session, recoveries: int, audit: str) -> Answer:
        count, seconds = len(self.tokens), self._last - self._first
        rate = (count - 1) / seconds if count > 1 and seconds > 0 else 0.0
        return Answer(self.shown, tuple(self.tokens), session.route, self._first - self._asked, rate, recoveries, audit)


@asynccontextmanager
async def conversation(config: ChatConfig, notes: Notes | None = None) -> AsyncIterator[Conversation]:
    """Enters the swarm as a client. Raises Unreachable where no bootstrap peer answers.

    `notes` take down what is seen of servers."""
    facts = read_facts(config.model)
    tokenizer = load_tokenizer(config.model)
    drafts = make_drafts(config.drafts, facts.vocab_size)
    node = await start_node(NodeConfig(initial_peers=config.initial_peers, client_mode=True))
    try:
        prefix = config.prefix or facts.prefix
        finder = RouteFinder(
            node,
            prefix,
            facts.num_blocks,
            allowed=config.allowed or None,
            blocked=config.blocked,
            monitor=config.monitor,
        )
        audit = Audit(config.audit_share) if config.audit_share else None
        try:
            async with RemoteModel.load(config.model, node.p2p, finder, prefix=prefix, notes=notes) as model:
                made = Conversation(model, tokenizer, config.sampling, config.push, drafts, audit)
                try:
                    yield made
                finally:
                    await made.close()
        finally:
            await finder.close()
    finally:
        await node.stop()


async def ask(config: ChatConfig, question: str, show: Say) -> Answer:
    """The swarm's answer to one question. Raises MissingBlocks where blocks have no server."""
    async with conversation(config) as made:
        return await made.ask(question, show)


def make_drafts(kind: str, vocab_size: int) -> Drafts | None:
    if kind == "none":
        return None
    return PromptLookup() if kind == "lookup" else SmallModel(Path(kind), vocab_size)


def load_tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise LocalError(f"{folder} holds no tokenizer that can be read: {str(error).splitlines()[0][:200]}") from error


def encode_question(tokenizer: Any, question: str) -> list[int]:
    """As the first turn of a chat where the model has a chat template, as plain text otherwise."""
    if not question.strip():
        raise LocalError("the question is empty")
    return encode_turns(tokenizer, [{"role": "user", "content": question}])


def encode_turns(tokenizer: Any, turns: list[dict[str, str]]) -> list[int]:
    if getattr(tokenizer, "chat_template", None):
        encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])
    return list(tokenizer("\n".join(turn["content"] for turn in turns))["input_ids"])


def describe(answer: Answer) -> str:
    """The route and the speed, in one line."""
    route = " → ".join(f"{hop.span} …{hop.peer_id[-6:]}" for hop in answer.route)
    recovered = f" · went on after losing {answer.recoveries} server(s)" if answer.recoveries else ""
    audited = f" · {answer.audit}" if answer.audit else ""
    speed = f"first token {answer.seconds_to_first:.1f} s, then {answer.tokens_per_second:.1f} tok/s"
    return f"[{len(answer.tokens)} tokens · {speed} · {route}{recovered}{audited}]"
