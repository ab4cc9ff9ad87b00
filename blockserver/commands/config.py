"""`sepal config show`: what a command would be run with, and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from blockserver.commands import options

SECRETS = ("token", "api_keys")
ORIGINS = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file", "DEFAULT": "default"}

app = typer.Typer(help="The settings: flag, then environment (SEPAL_…), then file, then default.", rich_markup_mode=None)


@app.callback()
def config() -> None:
    """The settings: flag, then environment (SEPAL_…), then file, then default."""


@app.command(help="Each setting of a command; --origin says where it comes from. Flags to try out follow the command's name.",
             context_settings={"ignore_unknown_options": True, "allow_extra_args": True})  # fmt: skip
def show(
    context: typer.Context,
    command: Annotated[str, typer.Argument(help="Of which command.")] = "serve",
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    as_json: options.AsJson = False,
) -> None:
    group: Any = context.find_root().command
    chosen = group.get_command(context, command)
    if chosen is None:
        options.usage(f"config show: no command is called {command}")
    settings = settings_of(chosen, context, list(context.args))
    if as_json:
        listed = settings if origin else {key: entry["value"] for key, entry in settings.items()}
        typer.echo(json.dumps(listed, indent=2))
        return
    width = max(len(key) for key in settings)
    for key, entry in settings.items():
        value = "" if entry["value"] is None else json.dumps(entry["value"])
        said = f"{entry['origin']}{': ' + entry['from'] if entry['from'] else ''}"
        typer.echo(f"{key:{width}}  {value:<40}  {said}".rstrip() if origin else f"{key:{width}}  {value}".rstrip())


def settings_of(command: Any, context: typer.Context, args: list[str]) -> dict[str, dict[str, Any]]:
    """Each key with its value, origin, and the flag, variable or file that it came from."""
    root = context.find_root()
    sub = command.make_context(command.name, args, parent=root, resilient_parsing=False)
    settings = {}
    for parameter in command.params:
        if not parameter.envvar:
            continue
        source = sub.get_parameter_source(parameter.name)
        origin = ORIGINS.get(source.name if source else "DEFAULT", "default")
        value = sub.params.get(parameter.name)
        places = {"flag": parameter.opts[0], "environment": parameter.envvar, "file": str(root.obj.get("settings_file", ""))}
        settings[parameter.name.replace("_", "-")] = {
            "value": "(hidden)" if value and parameter.name in SECRETS else _plain(value),
            "origin": origin,
            "from": places.get(origin, ""),
        }
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
