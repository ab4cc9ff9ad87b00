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
    question: Annotated[str | None, typer.Argument(help="What to ask; without it, a conversation.")] = None,
    model: Annotated[Path | None, flag("Folder with the model's embeddings and tokenizer.", "--model")] = None,
    initial_peers: options.InitialPeers = [],  # noqa: B006
    prefix: options.Prefix = None,
    max_new_tokens: Annotated[int, flag("Length of the answer at most.", "--max-new-tokens")] = 256,
    temperature: Annotated[float, flag("0 always takes the likeliest token.", "--temperature")] = 0.0,
    top_k: Annotated[int, flag("Draw from the k likeliest tokens; 0 from all.", "--top-k")] = 0,
    top_p: Annotated[float, flag("Draw from the likeliest tokens of this total probability.", "--top-p")] = 1.0,
    seed: Annotated[int | None, flag("The same seed gives the same answer.", "--seed")] = None,
    drafts: Annotated[
        str, flag("Guess ahead: lookup (from the text so far), none, or a folder with a small model.", "--drafts")
    ] = "lookup",
    push: Annotated[bool, flag("Let servers hand on to each other.", "--push/--no-push")] = True,
    audit: Annotated[float, flag("Share of steps, 0 to 1, that a second server computes too, to compare.", "--audit")] = 0.0,
    allow: Annotated[list[str], flag("Use this peer and those allowed besides, no others; may be repeated.", "--allow")] = [],  # noqa: B006
    block: Annotated[list[str], flag("Never use this peer; may be repeated.", "--block")] = [],  # noqa: B006
    site: options.Site = None,
    coordinator: options.ReportTo = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer.")] = False,
) -> None:
    from blockserver.client import chat as chatting
    from blockserver.client.notes import Notes
    from blockserver.client.sampling import Sampling
    from blockserver.client.terminal import talk
    from blockserver.reporting import reporting
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
            push=push,
            drafts=drafts,
            audit_share=audit,
            monitor=site or (demo.site if demo else None),
            allowed=tuple(map(_peer, allow)),
            blocked=tuple(map(_peer, block)),
        )
    )
    notes = Notes() if coordinator is not None and _is_site("--coordinator", coordinator) else None
    if notes is not None and not quiet:
        typer.echo(f"{coordinator} is told which servers failed and how fast they were; nothing of what is said.", err=True)

    async def ask() -> None:
        async with (
            chatting.conversation(config, notes) as made,
            reporting(coordinator, made.model.prefix, notes),
        ):
            if question is None:
                await talk(made, _write, (lambda text: None) if quiet else _tell)
                return
            answer = await made.ask(question, _write)
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
    memory_gb: Annotated[
        float | None, flag("Memory of your card in GB, where you do not know how many blocks fit.", "--memory-gb")
    ] = None,
    dtype: options.Dtype = "auto",
    quant_type: options.QuantType = "none",
    parameters_b: Annotated[
        float | None, flag("Billions of parameters of the model, where the site does not know.", "--parameters-b")
    ] = None,
    leaves: Annotated[str | None, flag("Say also what happens if this peer leaves.", "--leaves")] = None,
    as_json: options.AsJson = False,
) -> None:
    from blockserver.hints_report import Wanted, show_hints

    wanted = options.checked(lambda: Wanted(prefix, num_blocks, memory_gb, _precision(dtype, quant_type), parameters_b, leaves))
    raise typer.Exit(show_hints(_site(site, "hints"), wanted, as_json=as_json))


def _precision(dtype: str, quant_type: str) -> str:
    """The site's word for what a server would hold its blocks in; `auto` is what most checkpoints have."""
    from blockserver.config import check_precision

    check_precision(dtype, quant_type)
    return quant_type if quant_type != "none" else "bfloat16" if dtype == "auto" else dtype


def _site(given: str | None, command: str) -> str:
    demo = find_demo()
    address = given or (demo.site if demo else None)
    if address is None:
        options.usage(f"{command}: no demo runs from this folder, so --site is needed")
    _is_site("--site", address, command)
    return address


def _is_site(name: str, given: str, command: str = "chat") -> bool:
    from blockserver.site import is_address

    if not is_address(given):
        options.usage(f"{command}: {name} {given}: an address such as https://swarm.example is expected")
    return True


def _peer(text: str) -> str:
    from swarm.errors import BadRecord, LocalError
    from swarm.wire.keys import parse_peer_id

    try:
        return parse_peer_id(text)
    except BadRecord as error:
        raise LocalError(f"{text[:80]!r} is no peer id") from error


def _tell(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
