"""What the doctor's code says, in words: what was right, what is wrong, and what to do about it. Pure.

The doctor itself says more, on the machine it looks at; here stands what can be said without knowing that machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarm.wire.doctor import CHECKS, Mark, decode

SYMBOLS = {Mark.RIGHT: "✓", Mark.WARNING: "!", Mark.ERROR: "✗"}
LEVELS = {Mark.RIGHT: "good", Mark.WARNING: "warning", Mark.ERROR: "error"}

FIXES = {
    "addresses": "The bootstrap addresses cannot be read: copy the command above again, whole.",
    "gpu": "There is a graphics card that torch cannot use: install NVIDIA's driver, and a torch built with CUDA.",
    "model": "The folder is no model that can be served: it needs config.json and the safetensors files, all of them.",
    "memory": "Fewer blocks fit than you asked for: say a smaller number in step 1, or free memory.",
    "state folder": "Nothing can be written there: give your user that folder, or choose another with --state-dir.",
    "cache folder": "Nothing can be written there: give your user that folder, or choose another with --cache-dir.",
    "disk": "There is too little room on the disk: free some, or choose another disk.",
    "identity": "The identity file is broken, or others may read it: chmod 600 it, or move it away and let a new one be made.",
    "open files": "Too few files may be open at once: ulimit -n 4096, or LimitNOFILE=4096 in the unit.",
    "internet": "There is no route to addresses of that kind (IPv4 or IPv6): ask for some of the other kind.",
    "clock": "The clock runs wrong, and what your server announces would be refused: sudo timedatectl set-ntp true",
    "bootstrap": "No bootstrap peer answers: most often the address is wrong, or outgoing TCP is blocked by a firewall.",
    "prefix": "The swarm calls this model otherwise: use exactly the prefix that stands in the command of step 4.",
    "version": "Most servers run a newer version: python -m pip install --upgrade sepal",
    "site": "This site could not be asked; a server goes on without it, and decides by itself.",
    "port": "Others cannot reach the port: open and forward it, or go on by relay, which is slower.",
    "token": "The model hub refuses the token: make a new one.",
}
assert set(FIXES) == set(CHECKS)


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    symbol: str
    level: str
    words: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`lines`: faults first, in the order in which to heal them."""

    verdict: str
    well: bool
    lines: tuple[Line, ...]
    right: tuple[str, ...]


def read(code: str) -> Diagnosis:
    """Raises BadRecord."""
    marks = decode(code)
    faults = [name for name, mark in marks.items() if mark is Mark.ERROR]
    doubts = [name for name, mark in marks.items() if mark is Mark.WARNING]
    lines = tuple(Line(name, SYMBOLS[marks[name]], LEVELS[marks[name]], FIXES[name]) for name in (*faults, *doubts))
    right = tuple(name for name, mark in marks.items() if mark is Mark.RIGHT)
    return Diagnosis(_verdict(len(faults), len(doubts), len(right)), not faults, lines, right)


def _verdict(faults: int, doubts: int, right: int) -> str:
    if not (faults or doubts or right):
        return "Nothing was checked. Run it with the arguments above."
    if faults:
        what = "thing keeps" if faults == 1 else "things keep"
        return f"{faults} {what} this machine from serving. Heal the first, then run it again."
    if doubts:
        return "This machine can serve; something could be better."
    return "Nothing is wrong: go on to step 4."
