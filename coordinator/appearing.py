"""How far a server that was started has come: announced → loading → reachable → serving → first request. Pure.

Each step says what was seen, or how long it usually takes, and what to do where it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.published import ago
from swarm.snapshot import Model, PeerState, Server

ANNOUNCED_BY_S = 120.0
"""From when on a server that is still not seen is more likely stuck than slow: it announces within seconds, and the swarm is
looked at every half minute."""
LOADED_BY_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the server. `loaded` is the share of its bytes, where a hint of ours tells; `waited_s` is for how long
    somebody has been watching, `since_s` for how long it is in its state."""

    server: Server | None
    via: str = ""
    loaded: float | None = None
    first_request_ago_s: float | None = None
    waited_s: float = 0.0
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the checklist: `state` is done, now, stuck or later; `hint` says what to do where it hangs."""

    state: str
    symbol: str
    name: str
    words: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Checklist:
    heading: str
    steps: tuple[Step, ...]
    all_done: bool


SYMBOLS = {"done": "✓", "now": "◐", "stuck": "!", "later": "○"}


def seen_in(model: Model, peer_id: str) -> Server | None:
    return next((server for server in model.servers if server.peer_id == peer_id), None)


def checklist(seen: Seen, interval_s: float) -> Checklist:
    """`interval_s` is the time between two looks at the swarm."""
    reached = _reached(seen)
    told = (_announced(seen, interval_s), _loading(seen), _reachable(seen, interval_s), _serving(seen), _asked(seen))
    steps = []
    for place, (name, done, waiting, hint) in enumerate(told):
        state = "done" if place < reached else "later" if place > reached else "stuck" if hint else "now"
        steps.append(Step(state, SYMBOLS[state], name, done if state == "done" else waiting, hint if state == "stuck" else ""))
    return Checklist(_heading(seen, reached), tuple(steps), reached == len(told))


def _reached(seen: Seen) -> int:
    """How many steps lie behind it."""
    if seen.server is None:
        return 0
    if seen.server.quarantined:
        return 1
    if seen.server.state is PeerState.ONLINE:
        return 4 if seen.first_request_ago_s is None else 5
    return {PeerState.JOINING: 1, PeerState.UNREACHABLE: 2, PeerState.NOT_CHECKED: 2}.get(seen.server.state, 0)


_Told = tuple[str, str, str, str]
"""Name; words when done; words while waiting; what to do where it hangs, empty where it does not."""


def _announced(seen: Seen, interval_s: float) -> _Told:
    done = f"it announces {seen.server.span.in_words()}" if seen.server else ""
    usual = f"usually within {interval_s + 5:.0f} s of the line “announced” in its log"
    if seen.server is not None and seen.server.state is PeerState.LEAVING:
        return "announced", done, usual, "It says that it is leaving. Was it stopped? Start it again."
    late = seen.server is None and seen.waited_s > ANNOUNCED_BY_S
    stuck = (
        f"Not announced after {ago(seen.waited_s)}. Most often: wrong bootstrap address, or no outgoing TCP." if late else ""
    )
    return "announced", done, usual, stuck


def _loading(seen: Seen) -> _Told:
    share = f"{round(100 * seen.loaded)} %" if seen.loaded is not None else ""
    for_s = f", for {ago(seen.since_s)} now" if seen.since_s else ""
    waiting = f"{share + ' loaded' if share else 'minutes, by the size of the blocks and the disk'}{for_s}"
    if seen.server is not None and seen.server.quarantined:
        return "loading", "", waiting, f"This site's staff has set it aside: {seen.server.quarantined}"
    long = seen.since_s is not None and seen.since_s > LOADED_BY_S
    stuck = (
        "That is longer than it should take. Its log shows the rate; a slow disk or network is the usual cause." if long else ""
    )
    return "loading", "its blocks are loaded, it says", waiting, stuck


def _reachable(seen: Seen, interval_s: float) -> _Told:
    via = f" ({seen.via})" if seen.via else ""
    waiting = f"asked with each look at the swarm, every {interval_s:.0f} s, once it says that it is online"
    failed = seen.server is not None and seen.server.state is PeerState.UNREACHABLE
    stuck = "Our last check could not connect. Open and forward its port, or let it use a relay." if failed else ""
    return "reachable", f"our last check reached it{via}", waiting, stuck


def _serving(seen: Seen) -> _Told:
    where = seen.server.span.in_words() if seen.server else ""
    return "serving", f"it answers for {where}; clients may use it now", "from then on clients may use it", ""


def _asked(seen: Seen) -> _Told:
    if seen.first_request_ago_s is None:
        return "first request", "", "when the first client passes through it; on a quiet swarm that can take a while", ""
    return "first request", f"{ago(seen.first_request_ago_s)} ago", "", ""


def _heading(seen: Seen, reached: int) -> str:
    if seen.server is not None and seen.server.quarantined:
        return "set aside by this site's staff"
    if reached == 0:
        return "not announced yet"
    if reached == 1:
        return f"loading{f' {round(100 * seen.loaded)} %' if seen.loaded is not None else ''}"
    if reached == 2:
        return "not reached by our last check"
    return "serving" if reached == 4 else "serving, and in use"
