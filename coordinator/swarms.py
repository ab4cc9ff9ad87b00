"""SEPAL_SWARMS: which swarms this site watches, as JSON in the variable or as a JSON or TOML file that it names.

    [{"name": "main", "label": "Our swarm", "initial_peers": ["/ip4/203.0.113.5/tcp/31330/p2p/Qm…"]}]

Each has a name for addresses (letters, digits, - and _), and may have a label for people, `relay` (dial through relays),
`models` (prefixes to look for that the swarm keeps out of its index), `join_addresses` (bootstrap addresses for people who want
to join) and `gateway` (the address of the gateway that its chat page asks). In TOML each is a `[[swarms]]` table. Faults are
named when the site starts. Without the variable there is one swarm, from SEPAL_SWARM, SEPAL_INITIAL_PEERS and SEPAL_RELAY.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from swarm.errors import BadRecord
from swarm.wire.keys import parse_prefix

_NAME = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_FOR_PEOPLE: dict[str, type] = {"join_addresses": list, "gateway": str}
_KINDS: dict[str, type] = {"name": str, "label": str, "initial_peers": list, "relay": bool, "models": list, **_FOR_PEOPLE}


def read(given: str, short_form: dict[str, Any]) -> list[dict[str, Any]]:
    """The swarms in the order given; the first is the one that addresses without a swarm mean."""
    if not given:
        return [_checked(short_form, 1)]
    listed = _parsed(given)
    if not isinstance(listed, list) or not listed:
        raise ImproperlyConfigured("SEPAL_SWARMS must list at least one swarm, each with a name and initial_peers")
    swarms = [_checked(item, position) for position, item in enumerate(listed, start=1)]
    names = [swarm["name"] for swarm in swarms]
    if len(set(names)) < len(names):
        raise ImproperlyConfigured(f"SEPAL_SWARMS: each swarm needs a name of its own, not {', '.join(names)}")
    return swarms


def _parsed(given: str) -> Any:
    try:
        if given.lstrip().startswith(("[", "{")):
            read = json.loads(given)
        elif given.endswith(".toml"):
            read = tomllib.loads(Path(given).read_text())
        else:
            read = json.loads(Path(given).read_text())
    except OSError as error:
        raise ImproperlyConfigured(f"SEPAL_SWARMS names the file {given}, which cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ImproperlyConfigured(f"SEPAL_SWARMS cannot be read: {error}") from error
    return read.get("swarms") if isinstance(read, dict) else read


def _checked(item: Any, position: int) -> dict[str, Any]:
    where = f"SEPAL_SWARMS, swarm {position}"
    if not isinstance(item, dict):
        raise ImproperlyConfigured(f"{where}: a table with name and initial_peers is expected, not {item!r}")
    for key, value in item.items():
        kind = _KINDS.get(key)
        if kind is None:
            raise ImproperlyConfigured(f"{where}: {key!r} is none of {', '.join(_KINDS)}")
        if not isinstance(value, kind) or (isinstance(value, list) and not all(isinstance(entry, str) for entry in value)):
            raise ImproperlyConfigured(
                f"{where}: {key} is {value!r}, not a {'list of texts' if kind is list else kind.__name__}"
            )
    name = item.get("name", "")
    if not _NAME.fullmatch(name):
        raise ImproperlyConfigured(f"{where}: the name {name!r} must be of letters, digits, - and _ (64 at most)")
    try:
        models = [parse_prefix(prefix) for prefix in item.get("models", [])]
    except BadRecord as error:
        raise ImproperlyConfigured(f"{where}: {error.detail}") from error
    return {
        "name": name,
        "label": item.get("label") or name,
        "initial_peers": item.get("initial_peers", []),
        "relay": item.get("relay", False),
        "models": models,
        "join_addresses": item.get("join_addresses", []),
        "gateway": item.get("gateway", ""),
    }
