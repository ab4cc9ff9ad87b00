"""Where this program keeps things when it is not told: the platform's own folders, or the service manager's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

APP = "sepal"


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """systemd names a unit's `StateDirectory=` in STATE_DIRECTORY; the first where there are several."""
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else Path(platformdirs.user_state_dir(APP, appauthor=False))


def settings_file() -> Path:
    return Path(platformdirs.user_config_dir(APP, appauthor=False)) / "sepal.toml"


def cache_folder() -> Path:
    return Path(platformdirs.user_cache_dir(APP, appauthor=False))
