"""`sepal canary`: for whoever runs the site. It uses the swarm as a client does, and tells the site what came of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from blockserver.commands import options
from blockserver.commands.options import flag
from blockserver.demo_file import find_demo
from blockserver.running import EXIT_FAILED, run_until_stopped


def canary(
    model: Annotated[Path | None, flag("Folder with the model's embeddings and tokenizer.", "--model")] = None,
    initial_peers: options.InitialPeers = [],  # noqa: B006
    site: options.Site = None,
    key_path: Annotated[
        Path,
        flag(
            "File of the key that signs reports, made if missing; its peer id belongs in SEPAL_TRUSTED_REPORTERS.", "--key-path"
        ),
    ] = Path("canary.id"),
    prefix: options.Prefix = None,
    question: Annotated[str, flag("What to ask.", "--question")] = "The capital of France is",
    answer: Annotated[str | None, flag("The right answer's text; without it that of most runs counts.", "--answer")] = None,
    max_new_tokens: Annotated[int, flag("Length of the answer, where none is given.", "--max-new-tokens")] = 4,
    period: Annotated[float, flag("Seconds between two runs.", "--period")] = 300.0,
    once: Annotated[bool, typer.Option("--once", help="One run; exit code 1 unless the answer was as expected.")] = False,
) -> None:
    from blockserver.canary.run import CanaryConfig, run_canary
    from swarm.dht.addresses import parse_peer_addresses

    demo = find_demo()
    folder, address = model or (demo.model if demo else None), site or (demo.site if demo else None)
    peers = initial_peers or ([demo.bootstrap] if demo else [])
    if folder is None or not peers or address is None:
        options.usage("canary: no demo runs from this folder, so --model, --initial-peers and --site are needed")
    if max_new_tokens < 1 or period < 1:
        options.usage("canary: --max-new-tokens and --period are at least 1")
    config = options.checked(
        lambda: CanaryConfig(
            folder, parse_peer_addresses(peers), address, key_path, prefix, question, answer, max_new_tokens, period
        )
    )
    good = False

    async def watch(stop: asyncio.Event) -> None:
        nonlocal good
        good = await run_canary(config, stop, once)

    code = run_until_stopped(watch)
    raise typer.Exit(EXIT_FAILED if once and code == 0 and not good else code)
