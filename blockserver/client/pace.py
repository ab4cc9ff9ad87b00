"""How long to wait for a server: fixed limits for what is not known yet, and limits that follow from what was measured.

Pure: seconds in, seconds out. A stream whose peer vanished either ends at once or stays silent for good, so each step has a
limit of its own; one that is too short would leave servers that are only busy for the moment.
"""

from __future__ import annotations

from dataclasses import dataclass

SMOOTHING = 0.2
"""Share of the newest step in the average, as Petals smooths round trips."""
ENOUGH_STEPS = 3
"""Before so many steps were measured only the fixed limits count."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a server. `step_s` and `token_s` are the most; measured steps shorten them."""

    open_s: float = 15.0
    """For the connection: a dial over the internet through a relay takes several seconds."""
    step_s: float = 30.0
    """For a step, whatever its size ..."""
    token_s: float = 0.05
    """... and for each of its tokens: a long prefill on a slow volunteer's CPU."""
    suspicious_s: float = 1.0
    """A step that takes longer, and far longer than usual, makes the client ask whether the server is there at all."""
    busy_s: float = 8.0
    """A server that is there but computes may take so long for a step that usually takes no time: others have long prefills."""

    def most_s(self, tokens: int) -> float:
        return self.step_s + tokens * self.token_s


class Pace:
    """Seconds of one server's steps: their average and their usual deviation."""

    def __init__(self) -> None:
        self.steps = 0
        self.average_s = 0.0
        self.deviation_s = 0.0

    def note(self, seconds: float) -> None:
        if not self.steps:
            self.average_s, self.deviation_s = seconds, seconds / 2
        else:
            self.deviation_s += SMOOTHING * (abs(seconds - self.average_s) - self.deviation_s)
            self.average_s += SMOOTHING * (seconds - self.average_s)
        self.steps += 1

    @property
    def slow_s(self) -> float:
        """Longer than this is unusual."""
        return 2 * self.average_s + 4 * self.deviation_s

    def suspicious_after_s(self, limits: Limits, tokens: int) -> float:
        most = limits.most_s(tokens)
        if self.steps < ENOUGH_STEPS:
            return most
        return min(most, max(limits.suspicious_s, self.slow_s) + (tokens - 1) * limits.token_s)

    def hopeless_after_s(self, limits: Limits, tokens: int) -> float:
        most = limits.most_s(tokens)
        if self.steps < ENOUGH_STEPS:
            return most
        return min(most, max(limits.busy_s, 10 * self.slow_s) + (tokens - 1) * limits.token_s)
