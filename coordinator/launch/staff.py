"""A log-in for the admin of a site that runs from a run folder. Knows where that site's database is, not how people log in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from coordinator.launch import commands
from coordinator.launch.run_folder import PROJECT, RunFolder, read_json, write_atomically
from swarm.errors import LocalError

KEPT = ("DATABASE_URL", "REDIS_URL", "SEPAL_SECRET_KEY", "SEPAL_URL", "DJANGO_SETTINGS_MODULE")


def keep_environment(folder: RunFolder, env: Mapping[str, str]) -> None:
    """What a command about this site needs. For its owner's eyes only: the database's password is in it."""
    kept = {name: env[name] for name in KEPT if name in env}
    write_atomically(_file(folder), json.dumps(kept, indent=2) + "\n", mode=0o600)


def make_staff(run_dir: Path, name: str, *, made_up: bool) -> None:
    """Asks for the password on this terminal, or makes one up and shows it."""
    folder = RunFolder(run_dir.absolute())
    kept = read_json(_file(folder))
    if not isinstance(kept, dict):
        raise LocalError(f"No site has run with the run folder {folder.path}. Start one first: make demo")
    command = commands.make_staff(sys.executable, name, made_up=made_up)
    if subprocess.run(command, cwd=PROJECT, env={**os.environ, **kept}, check=False).returncode != 0:
        raise LocalError(f"No log-in was made for {name}.")


def _file(folder: RunFolder) -> Path:
    return folder.path / "site-environment.json"
