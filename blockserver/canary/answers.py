"""Which answer is the right one: the configured one, or that of most runs over different servers. Pure.

A majority is no proof: servers that are wrong alike are taken for right. So it is said beside each result what it rests on.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

Tokens = tuple[int, ...]
Verdict = Literal["expected", "unexpected"]

KEPT = 21
"""Answers that are remembered: a change of the model's weights is the majority after half as many runs."""
NEEDED = 3
"""Answers before anything is compared with them."""


@dataclass
class Expected:
    """`configured` is the answer that the operator vouches for; None: that of most runs counts."""

    configured: Tokens | None = None
    _given: deque[Tokens] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def trusted_by(self) -> Literal["configured", "majority"]:
        return "majority" if self.configured is None else "configured"

    def judge(self, answer: Tokens) -> Verdict | None:
        """None while too few runs have answered, or most do not agree."""
        self._given.append(answer)
        right = self.configured if self.configured is not None else self._majority()
        return None if right is None else "expected" if answer == right else "unexpected"

    def _majority(self) -> Tokens | None:
        tokens, count = Counter(self._given).most_common(1)[0]
        return tokens if len(self._given) >= NEEDED and 2 * count > len(self._given) else None
