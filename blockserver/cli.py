"""`sepal`, the command line: which commands there are, and the settings file that all of them share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from blockserver.commands import canary, config, gateway, machine, serve, use
from blockserver.commands.options import checked
from blockserver.commands.words import Command, Group
from blockserver.places import settings_file
from blockserver.running import EXIT_INTERRUPTED, log_to_stderr
from blockserver.settings_file import read_settings
from swarm.errors import LocalError

EXAMPLES = """Examples:

  sepal serve ./SmolLM2-135M-Instruct --initial-peers /ip4/203.0.113.5/tcp/31330/p2p/Qm… --coordinator https://swarm.example

  sepal chat "What is the capital of France?"

  sepal doctor ./SmolLM2-135M-Instruct --initial-peers /ip4/203.0.113.5/tcp/31330/p2p/Qm…
"""

SETTINGS = """Every flag may also stand in the environment (--num-blocks: SEPAL_NUM_BLOCKS) and in the settings file
(num-blocks = 12); `sepal config show --origin` says which one counts. `--help=word` shows only flags about that word.
"""

app = typer.Typer(
    name="sepal",
    cls=Group,
    help="Serve blocks of a language model in a volunteer swarm, and use the swarm.\n\n" + EXAMPLES + "\n" + SETTINGS,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def sepal(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    config_file: Annotated[
        Path | None, typer.Option("--config", envvar="SEPAL_CONFIG", help="Settings file, instead of the platform's place.")
    ] = None,
) -> None:
    log_to_stderr(verbose)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    path = config_file or settings_file()
    context.obj = {"settings_file": path}
    if config_file is not None or path.is_file():
        context.default_map = checked(lambda: read_settings(path, known_settings(context.command)))


def known_settings(group: Any) -> dict[str, frozenset[str]]:
    """For each command the settings that a file may hold: those that have an environment variable too."""
    return {
        name: frozenset(parameter.name for parameter in command.params if parameter.envvar)
        for name, command in group.commands.items()
        if name != "config"
    }


COMMANDS = (
    (serve.serve, "Serve blocks of a model: follow the coordinator's hints, or decide alone where none is set or it is away."),
    (serve.bootstrap, "Run a DHT peer by which others enter the swarm. It serves no blocks."),
    (use.chat, "Ask the swarm; the answer streams to stdout. Beside a running demo, model and peers are known."),
    (gateway.gateway, "Answer OpenAI's HTTP interface from the swarm: /v1/models, /v1/chat/completions, /v1/completions."),
    (use.status, "Can the swarm's models be used now? Reads the site's JSON."),
    (use.hints, "Where is a server needed most? Reads the site's JSON."),
    (
        machine.doctor,
        "Check this machine, its network and the swarm's address, and say the next command. Exit code 3 on errors.",
    ),
    (
        canary.canary,
        "Generate a few tokens through the swarm now and then, compare them with a trusted answer, and tell the site.",
    ),
    (machine.bench, "Measure how fast this machine computes a model's blocks."),
)

for function, text in COMMANDS:
    app.command(help=text, cls=Command)(function)
app.add_typer(config.app, name="config")


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except LocalError as error:  # raised where typer has no say, such as a home folder that cannot be found
        sys.exit(f"sepal: {error}")


if __name__ == "__main__":
    main()
