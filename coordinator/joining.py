"""What somebody who joins has to type: the doctor, then the server, in three ways. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

ASK_FOR_ADDRESS = "ADDRESS"
"""Stands where the site's operator has given no public bootstrap address."""

WAYS = ("pip", "container", "systemd")

SYSTEMS = {
    "linux": "",
    "windows": "On Windows type this inside WSL 2 (wsl --install): there it is a Linux like any other, and sees the card.",
    "macos": "On a Mac blocks are computed on the processor; the container runs too, and as slowly.",
}
"""What is different there; empty where nothing is."""


QUANTISED = ("int8", "nf4")
"""Precisions that `--quant-type` names; the others are `--dtype`'s."""


def command(
    way: str, prefix: str, num_blocks: int | None, addresses: Sequence[str], site: str, precision: str | None = None
) -> str:
    """What to type or to put into a file. MODEL_FOLDER stays to be filled in. `precision` is what was reckoned with; None:
    whatever the checkpoint has."""
    arguments = [
        f"--prefix {shlex.quote(prefix)}",
        *(f"--initial-peers {shlex.quote(address)}" for address in addresses or (ASK_FOR_ADDRESS,)),
        f"--coordinator {shlex.quote(site)}",
        *([f"--num-blocks {num_blocks}"] if num_blocks else []),
        *_precision(precision),
    ]
    if way == "container":
        mounted = "docker run -v ./MODEL_FOLDER:/model:ro -v sepal-state:/state -p 31330:31330 sepal-blockserver"
        listening = "--host-maddrs /ip4/0.0.0.0/tcp/31330"
        return _lines(mounted, "sepal serve /model", *arguments, listening, "--identity-path /state/server.id")
    if way == "systemd":
        serve = "ExecStart=/opt/sepal/.venv/bin/sepal serve MODEL_FOLDER"
        unit = _lines(serve, *arguments, "--identity-path /var/lib/sepal-server/server.id")
        return f"[Service]\nDynamicUser=yes\nStateDirectory=sepal-server\n{unit}\nRestart=always"
    return f"{install(precision)}\n" + _lines("sepal serve MODEL_FOLDER", *arguments, "--identity-path server.id")


def install(precision: str | None = None) -> str:
    """Blocks in 8 or 4 bits need a library that others do not."""
    return f"pip install '.[blockserver{',quantisation' if precision in QUANTISED else ''}]'"


def doctor(prefix: str, num_blocks: int | None, addresses: Sequence[str], site: str, precision: str | None = None) -> str:
    """One line, to be pasted before anything is served."""
    words = ["sepal doctor MODEL_FOLDER", f"--prefix {shlex.quote(prefix)}"]
    words += [f"--initial-peers {shlex.quote(address)}" for address in addresses or (ASK_FOR_ADDRESS,)]
    words += [f"--coordinator {shlex.quote(site)}", *([f"--num-blocks {num_blocks}"] if num_blocks else [])]
    return " ".join([*words, *_precision(precision)])


def _precision(precision: str | None) -> list[str]:
    if precision is None:
        return []
    return [f"--quant-type {precision}" if precision in QUANTISED else f"--dtype {precision}"]


def _lines(*parts: str) -> str:
    return " \\\n  ".join(parts)
