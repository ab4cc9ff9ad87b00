"""What the site's staff has decided, and the monitor honours: which servers count for nothing, when there is
maintenance, what is noted about an incident. (Who is not shown is another matter: that changes nothing that is counted.)

The monitor does not know who decides. Whoever does registers a `Staff` when Django starts; without one nothing is decided.
Every decision ends by itself, and none changes what is stored of the swarm. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from swarm.snapshot import PeerState, Server, Snapshot


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A time for which an outage was announced. `prefix` is empty where it concerns every model of the swarm."""

    prefix: str
    starts_at: float
    ends_at: float
    words: str

    def concerns(self, prefix: str) -> bool:
        return not self.prefix or self.prefix == prefix

    @property
    def sentence(self) -> str:
        what = f"Maintenance of {self.prefix}" if self.prefix else "Maintenance"
        return f"{what} until {_clock(self.ends_at)}: {self.words.rstrip('.')}."


@dataclass(frozen=True, slots=True)
class Note:
    """What the staff wrote about an incident."""

    at: float
    words: str

    @property
    def clock(self) -> str:
        return _clock(self.at)

    @property
    def iso(self) -> str:
        return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Rulings:
    """What holds at one moment. `quarantined` says why, by peer id."""

    quarantined: Mapping[str, str] = field(default_factory=dict)
    maintenance: tuple[Maintenance, ...] = ()

    def obeyed(self, server: Server) -> Server:
        """The server as it may be counted and shown."""
        why = self.quarantined.get(server.peer_id)
        if why is None:
            return server
        # As if it had not been checked: neither online nor a loss.
        state = server.state if server.state is PeerState.GONE else PeerState.NOT_CHECKED
        return replace(server, state=state, quarantined=why)

    def applied(self, snapshot: Snapshot) -> Snapshot:
        models = (replace(model, servers=tuple(map(self.obeyed, model.servers))) for model in snapshot.models)
        return replace(snapshot, models=tuple(models))

    def maintenance_of(self, prefix: str) -> Maintenance | None:
        """The one that runs now and ends last: alerts of this model wait until then."""
        running = [window for window in self.maintenance if window.concerns(prefix)]
        return max(running, key=lambda window: window.ends_at, default=None)


NO_RULINGS = Rulings()


class Staff(Protocol):
    def rulings(self, swarm: str, at: float) -> Rulings: ...

    def maintenance(self, swarm: str, since: float, until: float) -> tuple[Maintenance, ...]:
        """Every window that overlaps this time, past ones too."""

    def notes(self, incident_id: int) -> tuple[Note, ...]:
        """Oldest first."""


class Nobody:
    """A site without staff."""

    def rulings(self, swarm: str, at: float) -> Rulings:
        return NO_RULINGS

    def maintenance(self, swarm: str, since: float, until: float) -> tuple[Maintenance, ...]:
        return ()

    def notes(self, incident_id: int) -> tuple[Note, ...]:
        return ()


_staff: Staff = Nobody()


def register(who: Staff) -> None:
    global _staff
    _staff = who


def staff() -> Staff:
    return _staff


def announced(windows: Iterable[Maintenance], prefix: str, since: float, until: float) -> Maintenance | None:
    """The first of `windows` in which an incident of this model, from `since` to `until`, lay at least in part."""
    within = (w for w in windows if w.concerns(prefix) and w.starts_at <= until and w.ends_at >= since)
    return min(within, key=lambda window: window.starts_at, default=None)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b %H:%M UTC")
