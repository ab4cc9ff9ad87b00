"""`sepal`, the command line. Heavy imports wait until a command needs them, so that help comes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from blockserver.demo_file import find_demo
from blockserver.running import EXIT_INTERRUPTED, EXIT_USAGE, log_to_stderr, run, run_until_stopped
from swarm.errors import LocalError

T = TypeVar("T")

EXAMPLES = """Examples:

  sepal serve ./SmolLM2-135M-Instruct --initial-peers /ip4/203.0.113.5/tcp/31330/p2p/Qm… --coordinator https://swarm.example

  sepal chat "What is the capital of France?"

  sepal status
"""

app = typer.Typer(
    name="sepal",
    help="Serve blocks of a language model in a volunteer swarm, and use the swarm.\n\n" + EXAMPLES,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

InitialPeers = Annotated[
    list[str] | None,
    typer.Option("--initial-peers", "--initial_peers", help="Addresses of peers, ending in /p2p/PEER_ID; may be repeated."),
]
Prefix = Annotated[str | None, typer.Option("--prefix", "--dht_prefix", help="The model's name in the DHT.")]
HostMaddrs = Annotated[
    list[str], typer.Option("--host-maddrs", "--host_maddrs", help="Where to listen, such as /ip4/0.0.0.0/tcp/31330.")
]
IdentityPath = Annotated[
    Path | None,
    typer.Option("--identity-path", "--identity_path", help="Key file, so that the peer id stays the same; made if missing."),
]
ReadyFile = Annotated[Path | None, typer.Option("--ready-file", help="Write a JSON file here when ready.")]
PortMapping = Annotated[
    bool, typer.Option("--nat-port-map/--no-nat-port-map", help="Ask the local gateway to open a port (UPnP, NAT-PMP).")
]
Relay = Annotated[bool, typer.Option("--relay/--no-relay", help="Be reachable through other peers from behind a NAT.")]


@app.callback(invoke_without_command=True)
def sepal(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    log_to_stderr(verbose)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(help="Serve blocks of a model: follow the coordinator's hints, or decide alone where none is set or it is away.")
def serve(
    model: Annotated[Path, typer.Argument(help="Folder of the model: config.json and safetensors shards.")],
    initial_peers: InitialPeers = None,
    coordinator: Annotated[
        str | None,
        typer.Option("--coordinator", envvar="SEPAL_COORDINATOR", help="The site whose hints to follow."),
    ] = None,
    prefix: Prefix = None,
    num_blocks: Annotated[
        int | None,
        typer.Option("--num-blocks", "--num_blocks", help="Blocks to serve; by default as many as fit in memory."),
    ] = None,
    block_indices: Annotated[
        str | None,
        typer.Option("--block-indices", "--block_indices", help="Serve just these blocks, as in 0:18, and never move."),
    ] = None,
    host_maddrs: HostMaddrs = ["/ip4/0.0.0.0/tcp/0"],  # noqa: B006
    announce_maddrs: Annotated[
        list[str], typer.Option("--announce-maddrs", "--announce_maddrs", help="Addresses to tell others, if not those.")
    ] = [],  # noqa: B006
    identity_path: IdentityPath = None,
    public_name: Annotated[
        str | None,
        typer.Option("--public-name", "--public_name", help="Shown on the status page."),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", "--torch_dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    cache_tokens: Annotated[
        int, typer.Option("--cache-tokens", "--attn_cache_tokens", help="Attention cache in tokens, per block.")
    ] = 4096,
    update_period: Annotated[
        float, typer.Option("--update-period", "--update_period", help="Seconds between announcements.")
    ] = 120.0,
    hint_interval: Annotated[
        float, typer.Option("--hint-interval", help="Seconds between two questions to the coordinator.")
    ] = 30.0,
    fallback_after: Annotated[
        float, typer.Option("--fallback-after", help="Seconds of a silent coordinator until the server decides by itself.")
    ] = 180.0,
    confirm: Annotated[
        float, typer.Option("--confirm", help="Seconds for which a hole found alone must last before the server moves.")
    ] = 60.0,
    ready_file: ReadyFile = None,
    nat_port_map: PortMapping = True,
    relay: Relay = True,
) -> None:
    from blockserver.config import ServeConfig, parse_block_indices
    from blockserver.server import serve as serve_blocks
    from swarm.dht.addresses import parse_listen_addresses, parse_peer_addresses

    config = _checked(
        lambda: ServeConfig(
            model=model,
            initial_peers=parse_peer_addresses(initial_peers or []),
            coordinator=coordinator,
            prefix=prefix,
            num_blocks=num_blocks,
            block_indices=parse_block_indices(block_indices) if block_indices else None,
            listen=parse_listen_addresses(host_maddrs),
            announce=parse_listen_addresses(announce_maddrs),
            identity_path=identity_path,
            port_mapping=nat_port_map,
            relay=relay,
            public_name=public_name,
            dtype=dtype,
            cache_tokens=cache_tokens,
            update_period_s=update_period,
            hint_interval_s=hint_interval,
            fallback_after_s=fallback_after,
            confirm_s=confirm,
            ready_file=ready_file,
        )
    )
    raise typer.Exit(run_until_stopped(lambda stop: serve_blocks(config, stop)))


@app.command(help="Run a DHT peer by which others enter the swarm. It serves no blocks.")
def bootstrap(
    initial_peers: InitialPeers = None,
    host_maddrs: HostMaddrs = ["/ip4/0.0.0.0/tcp/0"],  # noqa: B006
    announce_maddrs: Annotated[
        list[str], typer.Option("--announce-maddrs", "--announce_maddrs", help="Addresses to tell others, if not those.")
    ] = [],  # noqa: B006
    identity_path: IdentityPath = None,
    ready_file: ReadyFile = None,
    nat_port_map: PortMapping = True,
    relay: Relay = True,
) -> None:
    from blockserver.bootstrap import run_bootstrap
    from swarm.dht.addresses import parse_listen_addresses, parse_peer_addresses
    from swarm.dht.node import NodeConfig

    config = _checked(
        lambda: NodeConfig(
            initial_peers=parse_peer_addresses(initial_peers or []),
            listen=parse_listen_addresses(host_maddrs),
            announce=parse_listen_addresses(announce_maddrs),
            identity_path=identity_path,
            port_mapping=nat_port_map,
            relay=relay,
        )
    )
    raise typer.Exit(run_until_stopped(lambda stop: run_bootstrap(config, ready_file, stop)))


@app.command(help="Ask the swarm; the answer streams to stdout. Beside a running demo, model and peers are known.")
def chat(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    model: Annotated[Path | None, typer.Option("--model", help="Folder with the model's embeddings and tokenizer.")] = None,
    initial_peers: InitialPeers = None,
    prefix: Prefix = None,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="Length of the answer at most.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw from the k likeliest tokens; 0 from all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw from the likeliest tokens of this total probability.")] = 1.0,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same answer.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer.")] = False,
) -> None:
    from blockserver.client import chat as chatting
    from blockserver.client.sampling import Sampling
    from swarm.dht.addresses import parse_peer_addresses

    demo = find_demo()
    folder = model or (demo.model if demo else None)
    peers = initial_peers or ([demo.bootstrap] if demo else [])
    if folder is None or not peers:
        _usage("chat: no demo runs from this folder, so --model and --initial-peers are needed")
    config = _checked(
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


@app.command(help="Can the swarm's models be used now? Reads the site's JSON.")
def status(
    site: Annotated[str | None, typer.Option("--site", envvar="SEPAL_SITE", help="Address of the site.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The JSON as it came.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 4 where a model cannot run.")] = False,
) -> None:
    from blockserver.status import show_status

    demo = find_demo()
    address = site or (demo.site if demo else None)
    if address is None:
        _usage("status: no demo runs from this folder, so --site is needed")
    raise typer.Exit(show_status(address, as_json=as_json, check=check))


def _checked(make: Callable[[], T]) -> T:
    """What the operator typed, as settings; a fault in it is a usage error."""
    try:
        return make()
    except LocalError as error:
        _usage(str(error))


def _usage(text: str) -> NoReturn:
    typer.echo(f"sepal: {text}", err=True)
    raise typer.Exit(EXIT_USAGE)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
