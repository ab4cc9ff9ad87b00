"""Which blocks a peer may count for by what stands in the DHT: its newest record, within the keys under which that stands.

Pure. Anyone may write any of these records, so a claim is a question to the server itself; `others` are what else to ask
it for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from swarm.errors import BadRecord
from swarm.readings import Dropped, Entry, Reading, decoded, dropped
from swarm.wire.keys import MAX_BLOCKS, block_uid, parse_peer_id
from swarm.wire.records import ServerRecord, parse_server_record
from swarm.wire.spans import Span, in_words, runs

MAX_RECORD_LIFE_S = 900.0
"""A record may count for this long after it was read, whatever expiry it claims: twice the longest update period in use
plus slack. The DHT itself accepts expiries ten years ahead, from anyone."""
SAME_ANNOUNCEMENT_S = 5.0
"""All records of one announcement run out in the same second; those of the one before it a minute or two earlier."""
MOST_OTHERS = 2
"""Other spans of one peer: its own record is one of the few largest, unless strangers wrote several of its size."""


class Claim(NamedTuple):
    """`others` are spans not within `span` under whose keys a record of the same peer stands too, the largest first: what is
    left of the server's own records where a stranger has replaced a part of them, or what it served before it moved."""

    record: ServerRecord
    span: Span
    expires_at: float
    others: tuple[Span, ...] = ()


@dataclass
class _Records:
    """All that stands in the DHT for one peer under one model: by claimed span, when the record of each block runs out."""

    newest: ServerRecord
    expires_at: float
    by_span: dict[Span | None, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, block: int, record: ServerRecord, expires_at: float) -> None:
        if expires_at > self.expires_at:
            self.newest, self.expires_at = record, expires_at
        self.by_span[record.span][block] = expires_at


def read_servers(prefix: str, num_blocks: int, reading: Reading, at: float) -> tuple[dict[str, Claim], list[Dropped]]:
    """Each peer's newest record, the span it may count for, and the record's capped expiry.

    A span never reaches beyond the keys under which it stands, so that one record cannot claim a whole model; and only the
    keys of the newest record count, so that the old records of a server that moved never widen its span.
    """
    found: dict[str, _Records] = {}
    left_out: list[Dropped] = []
    for block in range(min(num_blocks, MAX_BLOCKS)):
        key = block_uid(prefix, block)
        for entry in reading.entries.get(key, ()):
            if entry.expires_at > at:
                try:
                    _add(found, block, entry)
                except BadRecord as error:
                    left_out.append(dropped(key, entry, error))
    servers: dict[str, Claim] = {}
    for peer_id, records in sorted(found.items()):
        span = _span_of(records)
        if span is None:
            subject = f"{prefix}.{records.newest.span.start}" if records.newest.span else prefix
            detail = f"claims {records.newest.span}, but no key of it stands in the DHT"
            left_out.append(Dropped(subject, peer_id, "span", detail))
            continue
        expires_at = min(records.expires_at, at + MAX_RECORD_LIFE_S)
        servers[peer_id] = Claim(records.newest, span, expires_at, _others(records, span))
        left_out.extend(_left_over(prefix, peer_id, records))
    return servers, left_out


def _add(found: dict[str, _Records], block: int, entry: Entry) -> None:
    record = parse_server_record(decoded(entry))
    peer_id = parse_peer_id(entry.subkey)
    found.setdefault(peer_id, _Records(record, entry.expires_at)).add(block, record, entry.expires_at)


def _span_of(records: _Records) -> Span | None:
    """The run of keys that stands for the newest record. Older servers announce no span: then it is their longest run."""
    span = records.newest.span
    blocks = _within(records, span) if span is not None else _of_newest(records)
    return max(runs(blocks), key=lambda run: (len(run), -run.start), default=None)


def _within(records: _Records, span: Span) -> list[int]:
    return [block for block in records.by_span[span] if block in span]


def _of_newest(records: _Records) -> list[int]:
    """The keys of the newest announcement without a span. An older key between two of them is one that was missed this time;
    outside of them it is left over from before a move."""
    blocks = records.by_span[None]
    young = [block for block, expires_at in blocks.items() if expires_at >= records.expires_at - SAME_ANNOUNCEMENT_S]
    return [block for block in blocks if min(young) <= block <= max(young)]


def _others(records: _Records, span: Span) -> tuple[Span, ...]:
    """From the first key to the last of each claim: a key between them that was lost says nothing against the server."""
    hulls = {_hull(blocks if claimed is None else _within(records, claimed)) for claimed, blocks in records.by_span.items()}
    found = [hull for hull in hulls if hull is not None and not span.covers(hull)]
    return tuple(sorted(found, key=lambda hull: (-len(hull), hull))[:MOST_OTHERS])


def _hull(blocks: Iterable[int]) -> Span | None:
    listed = sorted(blocks)
    return Span(listed[0], listed[-1] + 1) if listed else None


def _left_over(prefix: str, peer_id: str, records: _Records) -> list[Dropped]:
    if records.newest.span is not None:
        return []
    old = sorted(records.by_span[None].keys() - set(_of_newest(records)))
    detail = f"{in_words(runs(old))}: left over from before its newest announcement"
    return [Dropped(block_uid(prefix, old[0]), peer_id, "left-over", detail)] if old else []
