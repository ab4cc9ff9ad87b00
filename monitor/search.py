"""Finds what a few letters mean: a peer id or its end, a public name, a block, a model. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.published import Watch, name_of
from monitor.tables import short
from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id

MOST = 50
SHORTEST_END = 4
"""Letters of a peer id's end that tell servers apart well enough."""
LONGEST = 128


@dataclass(frozen=True, slots=True)
class Hit:
    """`address` is without the swarm's base."""

    kind: str
    words: str
    address: str
    exact: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    text: str
    hits: tuple[Hit, ...]
    more: bool = False

    @property
    def words(self) -> str:
        """`3 things`, `More than 50 things`."""
        many = len(self.hits)
        return f"More than {many} things" if self.more else f"{many} things"

    @property
    def only(self) -> Hit | None:
        """Where there is nothing to choose."""
        exact = [hit for hit in self.hits if hit.exact]
        if len(exact) == 1:
            return exact[0]
        return self.hits[0] if len(self.hits) == 1 else None


def find(seen: Watch, text: str) -> Found:
    asked = text.strip().removeprefix("…")[:LONGEST]
    if not asked:
        return Found("", ())
    hits = [*_peer(asked), *_models(seen, asked), *_blocks(seen, asked), *_servers(seen, asked)]
    unlike = {hit.address: hit for hit in reversed(hits)}
    told = [hit for hit in hits if unlike[hit.address] is hit]
    return Found(asked, tuple(told[:MOST]), len(told) > MOST)


def _peer(asked: str) -> list[Hit]:
    try:
        peer_id = parse_peer_id(asked)
    except BadRecord:
        return []
    return [Hit("server", short(peer_id), f"/p/{peer_id}", exact=True)]


def _models(seen: Watch, asked: str) -> list[Hit]:
    models = seen.published.snapshot.models if seen.published else ()
    low = asked.casefold()
    return [
        Hit("model", name_of(model), f"/m/{model.prefix}", exact=low == model.prefix.casefold())
        for model in models
        if low in model.prefix.casefold() or low in name_of(model).casefold()
    ]


def _blocks(seen: Watch, asked: str) -> list[Hit]:
    number = asked.casefold().removeprefix("block").strip()
    models = seen.published.snapshot.models if seen.published else ()
    if not (number.isascii() and number.isdigit() and len(number) <= SHORTEST_END):
        return []
    block = int(number)
    return [
        Hit("block", f"block {block} of {name_of(model)}", f"/m/{model.prefix}?block={block}#servers")
        for model in models
        if block < model.num_blocks
    ]


def _servers(seen: Watch, asked: str) -> list[Hit]:
    if seen.published is None:
        return []
    low, hits = asked.casefold(), []
    for model in seen.published.snapshot.models:
        for server in (*model.servers, *seen.published.absent.get(model.prefix, ())):
            name = server.record.public_name or ""
            ends = len(asked) >= SHORTEST_END and server.peer_id.endswith(asked)
            if ends or (name and low in name.casefold()):
                words = f"{short(server.peer_id)} {name}".strip()
                where = f"{server.span.in_words()} of {name_of(model)}"
                hits.append(Hit("server", words, f"/p/{server.peer_id}", where=where))
    return hits
