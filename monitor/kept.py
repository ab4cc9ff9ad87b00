"""What is dear to ask and slow to change, kept in this process for a while. Knows no page.

In the process and not in Redis: a page must come without it, and a minute of history differs between processes by a minute.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

Answer = TypeVar("Answer")

KEPT_AT_MOST = 512
"""Answers, a few kilobytes each; who asks for more pages than that within half a minute pays for the reads."""
HISTORY_S = 30.0
"""Days and hours change once a minute."""

_answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
_lock = Lock()


def kept(key: Hashable, ask: Callable[[], Answer], for_s: float = HISTORY_S) -> Answer:
    """What `ask` said within the last `for_s` seconds under this key, else what it says now. Two may ask at once."""
    now = time.monotonic()
    with _lock:
        known = _answers.get(key)
    if known is not None and known[0] > now:
        answer: Answer = known[1]
        return answer
    answer = ask()
    with _lock:
        _answers[key] = (now + for_s, answer)
        _answers.move_to_end(key)
        while len(_answers) > KEPT_AT_MOST:
            _answers.popitem(last=False)
    return answer


def forget() -> None:
    with _lock:
        _answers.clear()
