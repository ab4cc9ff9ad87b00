"""`join.py READY_FILE HOST PORT COMMAND...`: waits for the bootstrap peer, then becomes COMMAND with its address.

A container cannot know the bootstrap's peer id before that has started once. The address is put into
SEPAL_INITIAL_PEERS, and in place of `@bootstrap` in an argument or in SEPAL_SWARMS. Needs the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

LIMIT_S = 120.0
PLACEHOLDER = "@bootstrap"


def address(ready_file: Path, host: str, port: str) -> str | None:
    """By host name: a container's address changes, its name does not. None while the file is not there or not whole."""
    try:
        peer_id = json.loads(ready_file.read_text(encoding="utf-8"))["peer_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return f"/dns4/{host}/tcp/{port}/p2p/{peer_id}"


def main(argv: list[str]) -> NoReturn:
    if len(argv) < 4:
        sys.exit("usage: join.py READY_FILE HOST PORT COMMAND...")
    ready_file, host, port, *command = argv
    deadline = time.monotonic() + LIMIT_S
    while (found := address(Path(ready_file), host, port)) is None:
        if time.monotonic() >= deadline:
            sys.exit(f"The bootstrap peer wrote no {ready_file} within {LIMIT_S:.0f} s; see its log.")
        time.sleep(0.5)
    os.environ["SEPAL_INITIAL_PEERS"] = found
    if "SEPAL_SWARMS" in os.environ:
        os.environ["SEPAL_SWARMS"] = os.environ["SEPAL_SWARMS"].replace(PLACEHOLDER, found)
    os.execvp(command[0], [found if word == PLACEHOLDER else word for word in command])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
