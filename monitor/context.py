"""What the frame around every page needs: theme, swarms, where the visitor is. A context processor; reads no database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from monitor.extensions import links
from monitor.swarms import WatchedSwarm, configured, named

THEME = "theme"
THEMES = ("system", "light", "dark")
THEME_KEPT_S = 365 * 86_400

FIRST_WAYS = (("/", "Overview"), ("/incidents", "Incidents"), ("/hints", "Hints"), ("/connect", "Help out"))


@dataclass(frozen=True, slots=True)
class Theme:
    name: str
    current: bool


@dataclass(frozen=True, slots=True)
class Way:
    """A page of the navigation; `path` begins behind what the swarm's addresses begin with."""

    path: str
    words: str
    current: bool


def frame(request: HttpRequest) -> dict[str, Any]:
    """`frame_swarm` is the swarm of this address; the first one where the address names none."""
    swarms = configured()
    current = _swarm_of(request)
    chosen = request.COOKIES.get(THEME, "")
    theme = chosen if chosen in THEMES else THEMES[0]
    return {
        "frame_theme": theme,
        "frame_themes": [Theme(name, name == theme) for name in THEMES],
        "frame_swarm": current,
        "frame_base": current.base if current else "",
        "frame_query": current.query if current else "",
        "frame_ways": ways(request.path, current.base if current else ""),
        "frame_others": [swarm for swarm in swarms if swarm != current],
        "frame_path": request.get_full_path(),
        "frame_text": request.GET.get("q", "")[:128] if request.path.endswith("/search") else "",
    }


def ways(path: str, base: str) -> list[Way]:
    """The navigation, with where one is: a page below another, such as an incident, counts as that one."""
    here = path.removeprefix(base)
    listed = [*FIRST_WAYS, *((link.path, link.words) for link in links())]
    return [Way(to, words, here == to or (to != "/" and here.startswith(f"{to}/"))) for to, words in listed]


def _swarm_of(request: HttpRequest) -> WatchedSwarm | None:
    match = request.resolver_match
    asked = (match.kwargs.get("swarm", "") if match else "") or request.GET.get("swarm", "")
    return named(str(asked)) or named("")
