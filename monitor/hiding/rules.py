"""What is left of a snapshot when names and peers are hidden. Pure.

A hidden name is absent wherever its server could repeat it. A hidden peer keeps its blocks, state and rates, which belong to
the swarm, and loses its id, name and pings; it is absent from the pings of others too.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.published import CrawlFacts, Published, Watch
from swarm.snapshot import Dropped, Model, Server

HIDDEN_WORDS = "(hidden)"


def name_key(name: str) -> str:
    """What makes two spellings the same name: no case, no compatibility forms, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


@dataclass(frozen=True)
class HiddenList:
    """`names` as `name_key` writes them; `peers` by id, with what is shown in their place."""

    names: frozenset[str] = frozenset()
    peers: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.peers)

    def shown(self, peer_id: str) -> str:
        return self.peers.get(peer_id, peer_id)

    def hides(self, text: str) -> bool:
        """Whether a stranger's text holds a hidden name."""
        return bool(self.names) and self._any_name.search(name_key(text)) is not None

    @functools.cached_property
    def _any_name(self) -> re.Pattern[str]:
        """As words of their own: a short name is a part of many others."""
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(self.names)))})(?!\w)")

    def scrubbed(self, value: Any) -> Any:
        """A JSON-ready value of ours without the ids of hidden peers, in full or as their last six characters."""
        if not self.peers:
            return value
        if isinstance(value, str):
            for peer_id, alias in self.peers.items():
                value = value.replace(peer_id, alias).replace(f"…{peer_id[-6:]}", f"…{alias[-6:]}")
            return value
        if isinstance(value, dict):
            return {self.scrubbed(key): self.scrubbed(item) for key, item in value.items()}
        return [self.scrubbed(item) for item in value] if isinstance(value, (list, tuple)) else value


def redacted(seen: Watch, hidden: HiddenList) -> Watch:
    if not hidden:
        return seen
    last = _crawl(seen.last_crawl, hidden) if seen.last_crawl is not None else None
    return replace(seen, last_crawl=last, published=_published(seen.published, hidden) if seen.published is not None else None)


def _published(published: Published, hidden: HiddenList) -> Published:
    snapshot = published.snapshot
    return replace(
        published,
        snapshot=replace(
            snapshot,
            models=tuple(_model(model, hidden) for model in snapshot.models),
            dropped=tuple(_dropped(record, hidden) for record in snapshot.dropped),
        ),
        absent={prefix: tuple(server_of(s, hidden) for s in servers) for prefix, servers in published.absent.items()},
        crawl=_crawl(published.crawl, hidden),
        crawl_failure=text_of(published.crawl_failure, hidden),
        held=text_of(published.held, hidden),
        sightings={(prefix, hidden.shown(peer)): seen for (prefix, peer), seen in published.sightings.items()},
        # Rates belong to the swarm: without these a hidden server would be believed otherwise on pages than by the planner.
        evidence={(prefix, hidden.shown(peer)): known for (prefix, peer), known in published.evidence.items()},
    )


def _crawl(crawl: CrawlFacts, hidden: HiddenList) -> CrawlFacts:
    """Errors quote whom they met."""
    return replace(
        crawl,
        failure=text_of(crawl.failure, hidden),
        held=text_of(crawl.held, hidden),
        confirmed=text_of(crawl.confirmed, hidden),
        split=text_of(crawl.split, hidden),
        addresses=tuple(replace(state, detail=text_of(state.detail, hidden)) for state in crawl.addresses),
    )


def _model(model: Model, hidden: HiddenList) -> Model:
    repository = None if model.repository and hidden.hides(model.repository) else model.repository
    conflict = text_of(model.conflict, hidden)
    return replace(model, repository=repository, conflict=conflict, servers=tuple(server_of(s, hidden) for s in model.servers))


def server_of(server: Server, hidden: HiddenList) -> Server:
    """The server as it may be shown."""
    record, visit = server.record, server.visit
    unlisted = server.peer_id in hidden.peers
    said = (record.public_name, record.version, *record.adapters)
    # Who is hidden says nothing about itself; of a hidden name nothing that repeats it is left.
    kept = [None if text is None or unlisted or hidden.hides(text) else text for text in said]
    record = replace(
        record,
        public_name=kept[0],
        version=kept[1],
        adapters=tuple(text for text in kept[2:] if text is not None),
        next_pings={} if unlisted else {peer: ping for peer, ping in record.next_pings.items() if peer not in hidden.peers},
    )
    if visit is not None:
        version = None if visit.version and (unlisted or hidden.hides(visit.version)) else visit.version
        detail = "" if unlisted else text_of(visit.detail, hidden)
        addresses = () if unlisted else visit.addresses
        visit = replace(visit, peer_id=hidden.shown(visit.peer_id), version=version, detail=detail, addresses=addresses)
    conflict = text_of(server.conflict, hidden)
    return replace(server, peer_id=hidden.shown(server.peer_id), record=record, visit=visit, conflict=conflict)


def _dropped(record: Dropped, hidden: HiddenList) -> Dropped:
    return replace(record, subkey=text_of(record.subkey, hidden), detail=text_of(record.detail, hidden))


def text_of(text: str, hidden: HiddenList) -> str:
    """A stranger's text as it may be shown."""
    scrubbed: str = hidden.scrubbed(text)
    return HIDDEN_WORDS if hidden.hides(text) else scrubbed
