"""The settings file: TOML, the same keys as the flags. Keys at the top serve every command that has such a flag, a table
named after a command only that one. A key that no command knows is an error that names the nearest one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from swarm.errors import LocalError


def read_settings(path: Path, known: Mapping[str, Collection[str]]) -> dict[str, dict[str, Any]]:
    """For each command its settings from the file. `known` has each command's keys, written with underscores."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise LocalError(f"{path}: {error}") from error
    everywhere = {key: value for key, value in document.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in document.items() if isinstance(value, dict)}
    for name in tables:
        if name not in known:
            raise LocalError(f"{path}: [{name}] is no command{_nearest(name, known)}")
    anywhere = {key for keys in known.values() for key in keys}
    common = _checked(everywhere, anywhere, str(path))
    return {
        command: {
            **{key: value for key, value in common.items() if key in keys},
            **_checked(tables.get(command, {}), keys, f"{path}, [{command}]"),
        }
        for command, keys in known.items()
    }


def _checked(given: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
    settings = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in known:
            raise LocalError(f"{where}: no setting is called {key}{_nearest(name, known)}")
        if isinstance(value, dict):
            raise LocalError(f"{where}: {key} is a setting, not a table")
        settings[name] = value
    return settings


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0].replace('_', '-')}?" if close else ""
