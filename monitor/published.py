"""What the monitor may say at one moment: the last snapshot that it got, how old that is, and why there is no newer one.

Pure. `standing` owns every verdict that leaves this process: page, JSON and metrics all show what it returns, so that a
snapshot too old to be believed is `unknown` everywhere at once. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from monitor.progress import Progress
from monitor.rates.facts import CanaryFacts, Told
from monitor.rulings import NO_RULINGS, Rulings
from monitor.serving import ClientRoute, client_route
from swarm.answers.judging import Finding
from swarm.coverage import Coverage, Verdict, coverage
from swarm.snapshot import AddressState, Model, PeerState, Server, Snapshot
from swarm.throughput import Belief, Evidence, believed_rates

MISSED_INTERVALS = 3
"""After so many missed crawls a snapshot is stale: one may be lost to a restart, two to a slow swarm."""
RECKONED_FROM = 0.05
"""The first twentieth is opening files, and says little about the rest."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of a server beside its last record: since when it is in its state, when it was first seen and last gave a
    sign, and since when it is here without a break."""

    state_since: float
    first_seen: float
    last_seen: float
    here_since: float


@dataclass(frozen=True, slots=True)
class Loading:
    """How far a server that loads has come, as it says itself: the share of its bytes, and since when it loads."""

    share: float
    since: float

    def left_s(self, now: float) -> float | None:
        """At the pace so far; None where there is too little of it to reckon with."""
        return (now - self.since) * (1 - self.share) / self.share if self.share >= RECKONED_FROM else None


@dataclass(frozen=True, slots=True)
class CrawlFacts:
    """One attempt to read the swarm. `failure` is empty where it could be read; `held` where the result was believed, otherwise
    it says why not; `confirmed` says how a doubt was settled. `dropped` counts records left out, by reason."""

    started_at: float
    finished_at: float
    failure: str = ""
    bootstraps: Mapping[str, bool] = field(default_factory=dict)
    keys_unread: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    held: str = ""
    confirmed: str = ""
    addresses: tuple[AddressState, ...] = ()
    split: str = ""

    @property
    def duration_s(self) -> float:
        return self.finished_at - self.started_at

    @property
    def bootstraps_up(self) -> int:
        return sum(self.bootstraps.values())


@dataclass(frozen=True, slots=True)
class Published:
    """The last snapshot as it may be shown at `read_at`.

    `snapshot_id` names the snapshot for ever: it is the id of the crawl that made it. `held` says why what was crawled since is
    not believed: then this is all there is to show, and it is stale. `absent` holds by prefix the servers that the snapshot
    does not have any more (gone) or could not read (not checked); `sightings` is by prefix and peer id, `verdict_since` by
    prefix. `evidence` of rates, what clients `told`, what the `answers` come to, and how far `loading` has come, are by prefix
    and peer id, the newest canaries by prefix.
    """

    snapshot: Snapshot
    crawl: CrawlFacts
    read_at: float
    interval_s: float
    crawl_failure: str = ""
    absent: Mapping[str, tuple[Server, ...]] = field(default_factory=dict)
    sightings: Mapping[tuple[str, str], Sighting] = field(default_factory=dict)
    verdict_since: Mapping[str, float] = field(default_factory=dict)
    held: str = ""
    evidence: Mapping[tuple[str, str], Evidence] = field(default_factory=dict)
    told: Mapping[tuple[str, str], Told] = field(default_factory=dict)
    canaries: Mapping[str, CanaryFacts] = field(default_factory=dict)
    answers: Mapping[tuple[str, str], Finding] = field(default_factory=dict)
    loading: Mapping[tuple[str, str], Loading] = field(default_factory=dict)
    snapshot_id: int = 0

    def age_s(self, now: float | None = None) -> float:
        """0 where it is dated ahead: see `ahead_s`."""
        return max(0.0, (self.read_at if now is None else now) - self.snapshot.at)

    @property
    def stale(self) -> bool:
        return bool(self.held) or self.late

    @property
    def late(self) -> bool:
        """Too old to be believed, whatever the reason; or of an age that nobody knows, since the clock was set back."""
        return not timely(self.snapshot.at, self.read_at, self.interval_s)

    @property
    def ahead_s(self) -> float:
        """By how much it is dated later than now, as far as that cannot be two machines' clocks; else 0."""
        ahead = self.snapshot.at - self.read_at
        return ahead if ahead > MISSED_INTERVALS * self.interval_s else 0.0

    @property
    def when(self) -> str:
        """`12 s ago`."""
        return "before the clock was set back" if self.ahead_s else f"{ago(self.age_s())} ago"


@dataclass(frozen=True, slots=True)
class Watch:
    """All there is to show of a swarm: what is published, if anything ever was, and how the last crawl went."""

    swarm: str
    read_at: float
    interval_s: float
    published: Published | None
    last_crawl: CrawlFacts | None
    failing_since: float | None = None
    rulings: Rulings = NO_RULINGS
    last_crawl_id: int = 0
    progress: Progress | None = None
    """How far the first check is, while there is nothing to show; None where that is not known."""
    ruled: str = ""
    """Changes with what the staff decides about anyone or anything here."""

    def as_of(self, now: float) -> Watch:
        """The same, as old as it is now."""
        published = replace(self.published, read_at=now) if self.published else None
        return replace(self, read_at=now, published=published)

    @property
    def sees(self) -> bool:
        """Whether what is published may be believed now."""
        return self.published is not None and not self.published.stale

    @property
    def overrun(self) -> bool:
        """Whether the last crawl took longer than the time between two."""
        return self.last_crawl is not None and self.last_crawl.duration_s > self.interval_s


@dataclass(frozen=True, slots=True)
class Standing:
    """What is to be said of one model now. `coverage` is what the snapshot says; `verdict` and `sentence` are what we say."""

    model: Model
    coverage: Coverage
    verdict: Verdict
    sentence: str
    since: float | None
    stale: bool
    route: ClientRoute


def as_of_now(published: Published, model: Model) -> Model:
    """The model as programs are told of it. While nobody sees the swarm, that is: nothing is known of any block or server."""
    if not published.stale:
        return model
    servers = tuple(server_as_of_now(published, server) for server in model.servers)
    return replace(model, servers=servers, unread_blocks=frozenset(range(model.num_blocks)))


def coverage_as_of_now(published: Published, model: Model) -> Coverage:
    return coverage(as_of_now(published, model), believed_rates_of(published, model))


def server_as_of_now(published: Published, server: Server) -> Server:
    return replace(server, state=PeerState.NOT_CHECKED) if published.stale else server


def timely(seen_at: float, now: float, interval_s: float) -> bool:
    """Whether what was seen then may be believed now. What is dated far ahead was seen before the clock was set back: nobody
    knows how long ago."""
    return abs(now - seen_at) <= MISSED_INTERVALS * interval_s


def ages_of(published: Published, prefix: str, now: float) -> dict[str, float]:
    """How long each server of a model has been here without a break, in seconds, by peer id. Who comes back after days is as
    new as any other: what it does next is what a server does that has just come."""
    return {
        peer_id: max(0.0, now - sighting.here_since) for (of, peer_id), sighting in published.sightings.items() if of == prefix
    }


def beliefs(published: Published, model: Model, now: float | None = None) -> dict[str, Belief]:
    """What is believed of each server's throughput: page, JSON and planner show and use the same figure."""
    ages = ages_of(published, model.prefix, published.read_at if now is None else now)
    return beliefs_by(published.evidence, ages, model)


def beliefs_by(evidence: Mapping[tuple[str, str], Evidence], ages: Mapping[str, float], model: Model) -> dict[str, Belief]:
    """The same of what is no snapshot yet. `evidence` is by prefix and peer id, `ages` are seconds by peer id."""
    own = {peer_id: item for (of, peer_id), item in evidence.items() if of == model.prefix}
    nothing = Evidence()
    known = {peer_id: replace(own.get(peer_id, nothing), seen_s=ages.get(peer_id)) for peer_id in own.keys() | ages.keys()}
    return believed_rates(model, known)


def believed_rates_of(published: Published, model: Model, now: float | None = None) -> dict[str, float]:
    """The same as bare figures, by peer id, of those of whom any is known: what coverage and the planner reckon with."""
    return figures_of(beliefs(published, model, now))


def figures_of(known: Mapping[str, Belief]) -> dict[str, float]:
    """Without the reasons, and without those of whom nothing is known."""
    return {peer_id: belief.believed for peer_id, belief in known.items() if belief.believed is not None}


def standing(published: Published, model: Model) -> Standing:
    covered = coverage(model, believed_rates_of(published, model))
    route = client_route(model)
    if published.stale:
        was = covered.sentence().partition("; every block has two or more servers")[0]
        sentence = f"unknown — {_was(covered.verdict, was)} {published.when}"
        return Standing(model, covered, Verdict.UNKNOWN, sentence, published.snapshot.at, True, route)
    since = published.verdict_since.get(model.prefix)
    return Standing(model, covered, covered.verdict, covered.sentence(), since, False, route)


def standings(published: Published) -> list[Standing]:
    """Worst first: a visitor asks whether something is wrong."""
    order = {Verdict.BROKEN: 0, Verdict.UNKNOWN: 1, Verdict.THIN: 2, Verdict.COMPLETE: 3}
    found = [standing(published, model) for model in published.snapshot.models]
    return sorted(found, key=lambda item: (order[item.verdict], item.model.prefix))


def name_of(model: Model) -> str:
    """What people call the model: its repository's last path component, else its prefix."""
    return (model.repository or "").rstrip("/").rsplit("/", 1)[-1] or model.prefix


def ago(seconds: float) -> str:
    """A length of time in its largest unit, as people say it: `12 s`, `7 min`, `3 h`, `2 d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def rfc3339(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _was(verdict: Verdict, sentence: str) -> str:
    """The sentence of then, told in the past."""
    told = {Verdict.BROKEN: ("cannot run", "could not run"), Verdict.UNKNOWN: ("unknown", "was unknown")}
    now, then = told.get(verdict, ("runs", "ran"))
    return then + sentence.removeprefix(now).replace(" has ", " had ").replace(" have ", " had ")
