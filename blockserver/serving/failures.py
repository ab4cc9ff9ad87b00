"""Which blocks could not be loaded here, or gave no numbers, a while ago: they are not tried again at once. Knows no reasons; a
machine that lacked memory for them may have it later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from swarm.wire.spans import Span

NOT_AGAIN_WITHIN_S = 3_600.0
"""Each try takes the server off its blocks for as long as two loads."""


@dataclass
class Failures:
    """`clock` is in seconds."""

    clock: Callable[[], float] = time.monotonic
    _failed_at: dict[tuple[str, Span], float] = field(default_factory=dict, init=False)

    @contextlib.contextmanager
    def noted(self, prefix: str, span: Span) -> Iterator[None]:
        """An error within is noted, and goes on its way. Being stopped is no error."""
        try:
            yield
        except Exception:
            self._failed_at[prefix, span] = self.clock()
            raise

    def recent(self, prefix: str, span: Span) -> bool:
        failed_at = self._failed_at.get((prefix, span))
        return failed_at is not None and self.clock() - failed_at < NOT_AGAIN_WITHIN_S
