"""A model whose blocks are out there: embeddings and head here, tokens in, tokens out.

Knows token ids, ends of the model and sessions; how a route is found and how servers are reached is given to it. Knows no
tokenizer: text is its caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from hivemind.p2p import P2P

from blockserver.client.audit import Audit
from blockserver.client.drafts import Drafts, Eagerness
from blockserver.client.embeddings import Ends, load_ends
from blockserver.client.notes import Notes
from blockserver.client.routes import FindRoute, Router, as_router
from blockserver.client.sampling import GREEDY, Sampling, choose
from blockserver.client.session import Patience, Session
from blockserver.client.stream import Limits
from blockserver.model.facts import ModelFacts, read_facts
from blockserver.wire.protocol import MAX_LENGTH
from swarm.errors import LocalError
from swarm.wire.spans import Span

T = TypeVar("T")

PREFILL_TOKENS = 1_024
"""Tokens of one step of a long prompt, so that other sessions get their turn in between."""


@dataclass
class RemoteModel:
    """Make it with `load`. `close` it, or use it as `async with`; sessions may run side by side."""

    facts: ModelFacts
    ends: Ends
    prefix: str
    p2p: P2P
    find_route: FindRoute | Router
    stop_ids: frozenset[int]
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    notes: Notes | None = None
    """Takes down what sessions see of servers."""

    def __post_init__(self) -> None:
        # One thread: embedding and head must not hold the event loop, and torch keeps a pool of workers for each caller.
        self.router = as_router(self.find_route)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ends")

    @classmethod
    def load(
        cls,
        folder: Path,
        p2p: P2P,
        find_route: FindRoute | Router,
        *,
        prefix: str | None = None,
        dtype: torch.dtype | None = None,
        limits: Limits | None = None,
        patience: Patience | None = None,
        notes: Notes | None = None,
    ) -> RemoteModel:
        """Reads embeddings and head only. `dtype` is the checkpoint's own by default. LocalError where something is missing."""
        facts = read_facts(folder)
        return cls(
            facts=facts,
            ends=load_ends(folder, dtype or facts.dtype),
            prefix=prefix or facts.prefix,
            p2p=p2p,
            find_route=find_route,
            stop_ids=read_stop_ids(folder),
            limits=limits or Limits(),
            patience=patience or Patience(),
            notes=notes,
        )

    async def __aenter__(self) -> RemoteModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def session(
        self,
        max_length: int,
        *,
        span: Span | None = None,
        push: bool = True,
        allowed: Collection[str] | None = None,
        blocked: Collection[str] = (),
        audit: Audit | None = None,
    ) -> Session:
        """A conversation of up to `max_length` tokens. Opens no connection before its first step.

        `span` is all blocks by default. Peers may be restricted to those `allowed`, and others `blocked`, by peer id. `audit`
        compares a share of the steps with what other servers compute.
        """
        if not 1 <= max_length <= MAX_LENGTH:
            raise LocalError(f"a session holds 1 to {MAX_LENGTH:,} tokens, prompt and answer together, not {max_length:,}")
        if span is not None and not self.facts.whole.covers(span):
            raise LocalError(f"{span.in_words()}: the model has blocks 0 to {self.facts.num_blocks - 1}")
        return Session(
            self.p2p,
            self.prefix,
            span or self.facts.whole,
            self.router,
            max_length,
            self.limits,
            self.patience,
            push=push,
            allowed=None if allowed is None else frozenset(allowed),
            blocked=frozenset(blocked),
            audit=audit,
            notes=self.notes,
        )

    async def generate(
        self,
        input_ids: Sequence[int],
        how: Sampling = GREEDY,
        session: Session | None = None,
        *,
        drafts: Drafts | None = None,
        before: Sequence[int] = (),
    ) -> AsyncIterator[int]:
        """New tokens one by one; the last is a stop token where the model ended by itself.

        `session` goes on with what is in it, of which `input_ids` must not repeat anything; without one, a session is
        opened for this call. `drafts` guess ahead, which changes how fast tokens come but not which; they see `before`, the
        tokens that the session holds, too. Raises MissingBlocks or RemoteError where the swarm cannot serve.
        """
        ids = self._checked(input_ids)
        async with contextlib.AsyncExitStack() as stack:
            if session is None:
                session = await stack.enter_async_context(self.session(len(ids) + how.max_new_tokens))
            tokens = self._tokens(session, ids, how, drafts, [*before, *ids])
            stack.push_async_callback(tokens.aclose)
            async for token in tokens:
                yield token

    async def _tokens(
        self, session: Session, ids: list[int], how: Sampling, drafts: Drafts | None, text: list[int]
    ) -> AsyncGenerator[int, None]:
        """`text` is all that drafts may look at; it grows here."""
        source, eager, left = how.generator(), Eagerness(), how.max_new_tokens
        guesses: list[int] = []
        logits = await self._logits(session, ids, 1)
        while True:
            chosen = self._chosen(logits, guesses, how, source)[:left]
            # The session holds every token but the last, whose turn it is to go in.
            begun = session.position - len(guesses)
            session.rollback(begun + len(chosen) - 1)
            eager.learned(len(guesses), len(chosen) - 1)
            text += chosen
            for place, token in enumerate(chosen):
                try:
                    yield token
                except GeneratorExit:
                    session.rollback(begun + place)
                    raise
            left -= len(chosen)
            if chosen[-1] in self.stop_ids or not left:
                return
            guesses = await self._guesses(session, drafts, text, min(eager.now, left - 1))
            logits = await self._logits(session, [chosen[-1], *guesses], 1 + len(guesses))

    def _chosen(self, logits: torch.Tensor, guesses: list[int], how: Sampling, source: torch.Generator) -> list[int]:
        """One token, and one more for each guess that was right. Drawn in order, so that a seed gives the same text."""
        chosen: list[int] = []
        for row, guess in zip(logits, [*guesses, None], strict=True):
            chosen.append(choose(row, how, source))
            if chosen[-1] != guess or chosen[-1] in self.stop_ids:
                break
        return chosen

    async def _guesses(self, session: Session, drafts: Drafts | None, text: list[int], most: int) -> list[int]:
        room = session.max_length - session.position - 1
        if drafts is None or min(most, room) < 1:
            return []
        guesses = await self._here(lambda: drafts.propose(text, min(most, room)))
        return [token for token in guesses[: min(most, room)] if 0 <= token < self.facts.vocab_size]

    async def _logits(self, session: Session, ids: list[int], last: int) -> torch.Tensor:
        """`[last, vocabulary]`, for the tokens after the last so many of these."""
        # One token's embedding is a row of a table; behind other sessions' heads it would wait its turn for nothing.
        tokens = torch.tensor([ids])
        embedded = self.ends.embed(tokens) if len(ids) == 1 else await self._here(lambda: self.ends.embed(tokens))
        for part in torch.split(embedded, PREFILL_TOKENS, dim=1):
            hidden = await session.step(part)
        return await self._here(lambda: self.ends.last_logits(hidden, last)[0])

    async def _here(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _checked(self, input_ids: Sequence[int]) -> list[int]:
        ids = list(input_ids)
        if not ids:
            raise LocalError("there must be at least one token to go on from")
        strange = [token for token in ids if not 0 <= token < self.facts.vocab_size]
        if strange:
            raise LocalError(f"token {strange[0]} is not within the model's vocabulary of {self.facts.vocab_size:,}")
        return ids


def read_stop_ids(folder: Path) -> frozenset[int]:
    """End-of-text ids from generation_config.json, or from config.json where that says none."""
    for name in ("generation_config.json", "config.json"):
        try:
            ids = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except FileNotFoundError:
            continue
        except (ValueError, AttributeError) as error:
            raise LocalError(f"{folder / name} cannot be read: {error}") from error
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()
