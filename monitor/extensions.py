"""What others show on the monitor's pages, in its navigation and in its JSON. The monitor observes and does not know who
advises; whoever does registers here when Django starts (`AppConfig.ready`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.registry import Collector
from pydantic import BaseModel

from monitor.published import Loading, Watch


@dataclass(frozen=True)
class Extension:
    """`documents(swarm, prefixes)` has a JSON-ready list for each model's document, under `key`, each of the shape that `item`
    describes; `about` says what it is. It asks for all models at once. `template` renders it on the model's page, with the
    list as `items`; `collector(swarm)` adds series to the metrics."""

    key: str
    template: str
    documents: Callable[[str, Sequence[str]], Mapping[str, list[dict[str, Any]]]]
    collector: Callable[[str], Collector] | None = None
    item: type[BaseModel] | None = None
    about: str = ""


@dataclass(frozen=True)
class Panel:
    """A part of the overview: `template` renders `items(seen)`, which is asked for once a snapshot."""

    key: str
    template: str
    items: Callable[[Watch], list[Any]]


@dataclass(frozen=True)
class Link:
    """One more page in the navigation."""

    path: str
    words: str


Telling = Callable[[str], Mapping[tuple[str, str], Loading]]
"""Of a swarm: how far servers say that they have come with loading, by prefix and peer id."""

_extensions: dict[str, Extension] = {}
_panels: dict[str, Panel] = {}
_links: dict[str, Link] = {}
_told: list[Telling] = []


def register(extension: Extension) -> None:
    _extensions[extension.key] = extension


def registered() -> tuple[Extension, ...]:
    return tuple(_extensions[key] for key in sorted(_extensions))


def register_panel(panel: Panel) -> None:
    _panels[panel.key] = panel


def panels() -> tuple[Panel, ...]:
    return tuple(_panels[key] for key in sorted(_panels))


def register_link(link: Link) -> None:
    _links[link.path] = link


def links() -> tuple[Link, ...]:
    """In the order in which they were registered."""
    return tuple(_links.values())


def register_loading(telling: Telling) -> None:
    _told[:] = [telling]


def loading_of(swarm: str) -> Mapping[tuple[str, str], Loading]:
    """Empty where nobody knows."""
    return _told[0](swarm) if _told else {}
