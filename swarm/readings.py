"""What was read from the DHT, entry by entry, and what of it was left out. Pure: knows no models and no servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swarm.errors import BadRecord


@dataclass(frozen=True, slots=True)
class Entry:
    """One value under one subkey as it was read: decoded, or the BadRecord that decoding ended in. Times in Unix seconds."""

    subkey: object
    value: object
    expires_at: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pass over some DHT keys brought. A key in `unread` was not answered for by any peer: it says nothing."""

    entries: Mapping[str, Sequence[Entry]]
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that was left out, and why: a page that shows nothing must be able to say so."""

    key: str
    subkey: str
    reason: str
    detail: str


def decoded(entry: Entry) -> object:
    """Raises BadRecord where decoding did."""
    if isinstance(entry.value, BadRecord):
        raise entry.value
    return entry.value


def dropped(key: str, entry: Entry, error: BadRecord) -> Dropped:
    return Dropped(key, repr(entry.subkey)[:80], error.reason, error.detail)
