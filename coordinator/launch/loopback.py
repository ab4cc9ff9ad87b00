"""GET on loopback, never through a proxy. Knows HTTP, not what the site answers."""

from __future__ import annotations

import http.client
import json
from typing import Any

from coordinator.launch.ports import LOOPBACK

TIMEOUT_S = 5.0


def status(port: int, path: str) -> int | None:
    """None where nobody answers."""
    answer = _get(port, path)
    return answer[0] if answer else None


def document(port: int, path: str) -> Any:
    """The JSON of a 200 answer; None for anything else."""
    answer = _get(port, path)
    if answer is None or answer[0] != 200:
        return None
    try:
        return json.loads(answer[1])
    except ValueError:
        return None


def _get(port: int, path: str) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
