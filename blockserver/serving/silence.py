"""How long a server waits for a coordinator that gives no advice, before it decides by itself. Seconds of one clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

SILENT_POLLS = 3
"""One lost answer, or two, is no silence."""
BLIND_PATIENCE_S = 600.0
"""For a coordinator that answers and says that it cannot see. Either its monitor holds back a crawl that it does not believe,
and the crawls after it settle that within minutes: to move before would be to know better than its gate. Or its crawler is
dead: then nothing heals until the servers look for themselves, as if there were no coordinator."""


@dataclass
class Silence:
    """One stretch of questions without advice."""

    after_s: float
    patience_s: float = field(default=0.0, init=False)
    """For how long it is waited for, from its beginning on."""
    _since: float | None = field(default=None, init=False)
    _polls: int = field(default=0, init=False)
    _least_s: float = field(default=0.0, init=False)

    def note(self, now: float, jitter: Callable[[], float], *, blind: bool = False) -> bool:
        """One more question without advice: no answer, or (`blind`) one that says that it cannot see. True where that is news:
        the first of them, or the first that is to be waited for longer. `jitter` is the share of the time that is added, since
        servers that lost the same coordinator are not all to move in one second."""
        self._polls += 1
        least_s = max(self.after_s, BLIND_PATIENCE_S) if blind else self.after_s
        if self._since is None:
            self._since = now
        elif least_s <= self._least_s:
            return False
        self._least_s, self.patience_s = least_s, least_s * (1.0 + jitter())
        return True

    def end(self) -> bool:
        """Advice has come. Whether there was a silence."""
        was = self._since is not None
        self._since, self._polls, self._least_s, self.patience_s = None, 0, 0.0, 0.0
        return was

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def lasted_s(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since

    def is_over(self, now: float) -> bool:
        """Whether the server decides by itself now."""
        return self._since is not None and self._polls >= SILENT_POLLS and now - self._since >= self.patience_s
