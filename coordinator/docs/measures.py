"""How the site measures, told with the figures that the code itself uses. Pure but for reading constants.

A threshold that changes in the code changes here by itself; a word that is new must be added here (a test counts them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from coordinator import lease_terms
from monitor import gate, probe
from monitor.history import partitions, retention, rules, uptime
from monitor.history.rules import Kind
from monitor.models import GONE_LISTED_FOR, KEPT_FOR, MODEL_REMEMBERED_FOR
from monitor.published import MISSED_INTERVALS, ago
from monitor.serving import FULL, QUARANTINED
from monitor.tables import JOINING_LONG_S, STATE_SYMBOLS
from monitor.verdicts import SYMBOLS
from swarm.answers import judging
from swarm.coverage import THIN_REDUNDANCY, Verdict
from swarm.skew import CLOCKS_AGREE_S
from swarm.snapshot import MAX_RECORD_LIFE_S, PeerState
from swarm.throughput import DOUBTED_SHARE, SETTLED_S, SLACK


@dataclass(frozen=True, slots=True)
class Word:
    symbol: str
    word: str
    meaning: str
    then: str
    """What happens next, or what to do."""


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: str
    why: str


VERDICTS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.COMPLETE: (f"Every block has {THIN_REDUNDANCY} or more servers that answered us.", "Any one server may leave."),
    Verdict.THIN: ("It runs, and some blocks have one server.", "The next loss there stops the model."),
    Verdict.BROKEN: ("Some blocks have no server that answered us.", "Nobody can run the model until one comes."),
    Verdict.UNKNOWN: ("We could not look, or could not read all of it.", "It may well run. No downtime is counted."),
}

STATES: Mapping[PeerState, tuple[str, str]] = {
    PeerState.ONLINE: (
        "It announces its blocks, and answered when we asked it for the first and the last of them.",
        "Clients may use it.",
    ),
    PeerState.JOINING: (
        "It says that it is loading its blocks, and does not yet answer for them.",
        f"Usually minutes; after {ago(JOINING_LONG_S)} it may be stuck.",
    ),
    PeerState.LEAVING: ("It says goodbye.", "It serves no new request."),
    PeerState.UNREACHABLE: (
        "It announces to be online, and did not answer us, or computed nothing: zeros, no numbers, or just what it was sent.",
        "Its blocks do not count. Others may still reach it.",
    ),
    PeerState.GONE: (
        "Its announcement has run out, or was taken back.",
        f"Listed for {ago(GONE_LISTED_FOR.total_seconds())} more.",
    ),
    PeerState.NOT_CHECKED: (
        "Its record could not be read, or there was no time to ask it.",
        "Neither counted as up nor as down.",
    ),
}

MORE_STATES = (
    Word(
        "◉", FULL, "Online, with no cache left for another session.", "It counts for its blocks; new requests pass elsewhere."
    ),
    Word(
        "?",
        QUARANTINED,
        "Set aside by this site's staff, who say why, until when.",
        "It counts for nothing and gets no hints; it ends by itself.",
    ),
)

INCIDENTS: Mapping[Kind, str] = {
    Kind.HOLE: "A block without a server in two checks in a row. Counts as downtime of the model.",
    Kind.THIN: f"A block with one server for {ago(rules.THIN_FOR_S)}. A warning; the model ran.",
    Kind.BLIND: "The monitor itself did not see the swarm. Says nothing about the servers, and counts for nobody.",
}

UNKNOWNS = (
    "Whether a server computes rightly for you: now and then we compare its answers with those of others, where there are any;"
    " a crowd that lies alike looks right.",
    "Throughput, cache and version are what servers say of themselves, unless a page says that they were measured.",
    "Who runs a server: names are what servers call themselves, and anyone may take any name.",
    "What happened between two checks: times of an incident are given as a span, from when all was last well.",
    "Servers that announce themselves in another swarm, or under another prefix.",
    "Where servers stand: no address is kept, looked up or shown.",
)


def words() -> tuple[Word, ...]:
    verdicts = (Word(SYMBOLS[verdict], verdict.value, *VERDICTS[verdict]) for verdict in Verdict)
    return tuple(verdicts)


def states() -> tuple[Word, ...]:
    return (*(Word(STATE_SYMBOLS[state], state.value, *STATES[state]) for state in PeerState), *MORE_STATES)


def figures(interval_s: float) -> tuple[Figure, ...]:
    return (*_looking(interval_s), *_believing(interval_s), *_remembering(), *_advising())


def _length(seconds: float) -> str:
    """Up to two minutes in seconds: a threshold must not lose its half minute."""
    return f"{seconds:g} s" if seconds <= 120 else ago(seconds)


def _looking(interval_s: float) -> tuple[Figure, ...]:
    return (
        Figure("Between two checks", _length(interval_s), "Each reads every block's key and asks every announced server."),
        Figure(
            "“Stale” after",
            f"{MISSED_INTERVALS} missed checks ({_length(MISSED_INTERVALS * interval_s)})",
            "Then every verdict becomes unknown.",
        ),
        Figure("Servers asked at once", f"{probe.VISITS_AT_ONCE}", "Those that answered last time come first."),
        Figure(
            "The asking ends",
            f"{probe.SILENCE_S:g} s after the last answer",
            f"Any number of dead servers costs that once; {probe.VISITS_S:g} s end it in any case.",
        ),
        Figure("A record counts for at most", ago(MAX_RECORD_LIFE_S), "Whatever expiry it claims."),
        Figure("Clocks agree within", f"{CLOCKS_AGREE_S:g} s", "Beyond that a server is said to run wrong."),
    )


def _believing(interval_s: float) -> tuple[Figure, ...]:
    share = f"{gate.MASS_LOSS} servers or more and {gate.MASS_LOSS_SHARE:.0%} of them"
    return (
        Figure("A loss is doubted where", share, "vanish in one check: then the monitor is more likely ill than the swarm."),
        Figure(
            "A check is doubted where", f"{gate.MUCH_UNREAD:.0%} of the keys are unread", "What is missing was not looked at."
        ),
        Figure(
            "It is confirmed within",
            _length(gate.CONFIRMS_FOR_INTERVALS * interval_s),
            "By another way into the swarm, or by the next check.",
        ),
        Figure(
            "A measured rate may be exceeded by", f"{SLACK - 1:.0%}", "More than that of what a server reports is not believed."
        ),
        Figure(
            "Its answers differ where",
            f"{judging.OTHERS_NEEDED} networks or more agree against it",
            f"At {judging.ROUNDS_NEEDED} of its last {judging.ROUNDS_REMEMBERED} comparisons. It is shown so, and its speed"
            f" counts as {DOUBTED_SHARE:.0%} of a usual one's at most; its blocks still count, since a crowd can lie.",
        ),
        Figure(
            "Two answers differ by",
            f"{judging.APART:.0%} of what the blocks add",
            "Less is what four bits lose; nonsense is farther away.",
        ),
        Figure(
            "Nothing is computed where",
            f"{judging.WRONG_NEEDED} answers in a row are wrong by themselves",
            "Then its blocks do not count until it answers rightly.",
        ),
        Figure("A server is settled after", ago(SETTLED_S), "Until then it counts as a usual one at most."),
    )


def _remembering() -> tuple[Figure, ...]:
    def days(kept: timedelta) -> str:
        return f"{kept.days} days"

    return (
        Figure("Every minute is kept for", f"{partitions.KEPT} days", "Then hours and days of it remain."),
        Figure("Checks are kept for", days(KEPT_FOR), "With what was left out, and why."),
        Figure("Days of servers", days(retention.SERVER_DAYS_KEPT), f"{uptime.DAYS} are shown."),
        Figure("Days of models and incidents", days(retention.MODEL_DAYS_KEPT), "So that a year can be compared."),
        Figure(
            "A model is looked for",
            f"{ago(MODEL_REMEMBERED_FOR.total_seconds())} after its last sign",
            "One lost record must not blank its page.",
        ),
    )


def _advising() -> tuple[Figure, ...]:
    return (
        Figure("A hint is reserved for", f"{lease_terms.OFFER_LIFE.total_seconds():.0f} s", "Then the next server gets it."),
        Figure(
            "While loading a sign is due every",
            ago(lease_terms.LOADING_LIFE.total_seconds()),
            "A server that says nothing for so long has died.",
        ),
        Figure(
            "A missing block waits for one server",
            ago(lease_terms.PATIENCE_S),
            "Then the next is asked as well. The first may go on loading.",
        ),
        Figure("A server may load for", ago(lease_terms.LONGEST_LOAD_S), "While what it has loaded is on course for that."),
    )
