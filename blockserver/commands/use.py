"""`sepal chat`, `sepal status` and `sepal hints`: for those who use a swarm or wonder where to help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from blockserver.commands import options
from blockserver.commands.options import flag
from blockserver.demo_file import find_demo
from blockserver.running import run


def chat(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    model: Annotated[Path | None, flag("Folder with the model's embeddings and tokenizer.", "--model")] = None,
    initial_peers: options.InitialPeers = [],  # noqa: B006
    prefix: options.Prefix = None,
    max_new_tokens: Annotated[int, flag("Length of the answer at most.", "--max-new-tokens")] = 256,
    temperature: Annotated[float, flag("0 always takes the likeliest token.", "--temperature")] = 0.0,
    top_k: Annotated[int, flag("Draw from the k likeliest tokens; 0 from all.", "--top-k")] = 0,
    top_p: Annotated[float, flag("Draw from the likeliest tokens of this total probability.", "--top-p")] = 1.0,
    seed: Annotated[int | None, flag("The same seed gives the same answer.", "--seed")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer.")] = False,
) -> None:
    from blockserver.client import chat as chatting
    from blockserver.client.sampling import Sampling
    from swarm.dht.addresses import parse_peer_addresses

    demo = find_demo()
    folder = model or (demo.model if demo else None)
    peers = initial_peers or ([demo.bootstrap] if demo else [])
    if folder is None or not peers:
        options.usage("chat: no demo runs from this folder, so --model and --initial-peers are needed")
    config = options.checked(
        lambda: chatting.ChatConfig(
            folder,
            parse_peer_addresses(peers),
            prefix,
            Sampling(max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        )
    )

    async def ask() -> None:
        answer = await chatting.ask(config, question, _write)
        _write("\n")
        if not quiet:
            typer.echo(chatting.describe(answer), err=True)

    raise typer.Exit(run(ask()))


def status(
    site: options.Site = None,
    as_json: options.AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 4 where a model cannot run.")] = False,
) -> None:
    from blockserver.status import show_status

    raise typer.Exit(show_status(_site(site, "status"), as_json=as_json, check=check))


def hints(
    site: options.Site = None,
    prefix: options.Prefix = None,
    num_blocks: Annotated[int | None, flag("Blocks that your machine would hold.", "--num-blocks")] = None,
    as_json: options.AsJson = False,
) -> None:
    from blockserver.hints_report import show_hints

    raise typer.Exit(show_hints(_site(site, "hints"), prefix=prefix, num_blocks=num_blocks, as_json=as_json))


def _site(given: str | None, command: str) -> str:
    demo = find_demo()
    address = given or (demo.site if demo else None)
    if address is None:
        options.usage(f"{command}: no demo runs from this folder, so --site is needed")
    return address


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
