"""How words on the command line are read, beyond what typer does.

- Flags may be written as Petals does, with underscores: `--num_blocks` is `--num-blocks`.
- Several addresses may follow one `--initial-peers`, as in Petals.
- `--help=word` shows only options in whose name or description the word stands.
- `--config FILE` may stand anywhere.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_HELP = "--help="
_ADDRESS = re.compile(r"/(ip4|ip6|dns|dns4|dns6|dnsaddr)/")
_TAKE_SEVERAL = ("--initial-peers", "--host-maddrs", "--announce-maddrs")


class Command(TyperCommand):
    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        word = next((arg.removeprefix(_HELP) for arg in args if arg.startswith(_HELP)), None)
        if word is not None:
            show_help_about(self, context, word)
        parsed: list[str] = super().parse_args(context, with_several(with_dashes(args)))
        return parsed


class Group(TyperGroup):
    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        args = with_config_first(with_dashes(args))
        if args and args[0].startswith(_HELP):
            word = args[0].removeprefix(_HELP)
            for name in self.list_commands(context):
                command: Any = self.get_command(context, name)
                if matching(command, word):
                    show_help_about(command, typer.Context(command, parent=context, info_name=name), word, leave=False)
            raise typer.Exit(0)
        parsed: list[str] = super().parse_args(context, args)
        return parsed


def with_dashes(args: list[str]) -> list[str]:
    """Underscores in flags as dashes; what follows a bare `--` is left alone."""
    if "--" in args:
        at = args.index("--")
        return [*with_dashes(args[:at]), *args[at:]]
    return [re.sub(r"^--[^=]*", lambda flag: flag[0].replace("_", "-"), arg) for arg in args]


def with_several(args: list[str]) -> list[str]:
    """`--initial-peers A B` as `--initial-peers A --initial-peers B`, for as long as addresses follow."""
    spread: list[str] = []
    flag: str | None = None
    for position, arg in enumerate(args):
        if arg in _TAKE_SEVERAL:
            flag = arg
        elif not _ADDRESS.match(arg):
            flag = None
        elif flag is not None and args[position - 1] != flag:
            spread.append(flag)
        spread.append(arg)
    return spread


def with_config_first(args: list[str]) -> list[str]:
    """`--config FILE` belongs to the program; people type it behind the command."""
    end = args.index("--") if "--" in args else len(args)
    for position, arg in enumerate(args[:end]):
        if arg.startswith("--config="):
            return [arg, *args[:position], *args[position + 1 :]]
        if arg == "--config" and position + 1 < end:
            return [*args[position : position + 2], *args[:position], *args[position + 2 :]]
    return args


def matching(command: Any, word: str) -> list[Any]:
    """The command's options and arguments in whose name or description `word` stands."""
    wanted = word.lower().replace("_", "-")

    def says(parameter: Any) -> bool:
        text = " ".join((*parameter.opts, *parameter.secondary_opts, parameter.help or "")).lower()
        return wanted in text.replace("_", "-")

    return [parameter for parameter in command.params if says(parameter)]


def show_help_about(command: Any, context: Any, word: str, leave: bool = True) -> None:
    found = matching(command, word)
    typer.echo(f"{context.command_path}: options about {word!r}")
    for parameter in found:
        names = ", ".join((*parameter.opts, *parameter.secondary_opts))
        typer.echo(f"  {names}\n      {parameter.help or ''}")
    if not found:
        typer.echo(f"  none; `{context.command_path} --help` lists all")
    if leave:
        raise typer.Exit(0)
