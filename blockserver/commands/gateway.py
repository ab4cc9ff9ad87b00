"""`sepal gateway`: the swarm behind OpenAI's HTTP interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockserver.commands import options
from blockserver.commands.options import flag
from blockserver.demo_file import find_demo
from blockserver.running import run_until_stopped


def gateway(
    model: Annotated[Path | None, flag("Folder with the model's embeddings and tokenizer.", "--model")] = None,
    initial_peers: options.InitialPeers = [],  # noqa: B006
    prefix: options.Prefix = None,
    dtype: options.Dtype = "auto",
    # `serve` has a --port too: in the environment and in the settings file the two must not be one.
    gateway_host: Annotated[str, flag("Where to listen.", "--gateway-host", "--host")] = "127.0.0.1",
    gateway_port: Annotated[int, flag("Listen on this TCP port; 0 takes a free one.", "--gateway-port", "--port")] = 8900,
    site: options.Site = None,
    coordinator: options.ReportTo = None,
    api_keys: Annotated[
        list[str], flag("Keys that callers must have one of; may be repeated. Better in the environment.", "--api-keys")
    ] = [],  # noqa: B006
    trusted_proxies: Annotated[
        list[str], flag("Whose X-Forwarded-For is believed: addresses or networks; may be repeated.", "--trusted-proxies")
    ] = ["127.0.0.0/8", "::1"],  # noqa: B006
    max_concurrent: Annotated[int, flag("Answers at once; more wait for their turn.", "--max-concurrent")] = 16,
    max_waiting: Annotated[int, flag("Requests that may wait.", "--max-waiting")] = 64,
    max_waiting_each: Annotated[int, flag("Of these, so many of one caller.", "--max-waiting-each")] = 8,
    max_length: Annotated[int, flag("Tokens of prompt and answer together, at most.", "--max-length")] = 4096,
    # `generate` has a --temperature too.
    temperature: Annotated[
        float | None,
        flag("Where a request says none; by default the authors' choice, or 1.", "--gateway-temperature", "--temperature"),
    ] = None,
    top_p: Annotated[float | None, flag("Likewise.", "--gateway-top-p", "--top-p")] = None,
    top_k: Annotated[int | None, flag("Likewise.", "--gateway-top-k", "--top-k")] = None,
    relay: Annotated[bool, flag("Reach servers behind a NAT through other peers.", "--relay/--no-relay")] = False,
    ready_file: options.ReadyFile = None,
) -> None:
    from blockserver.gateway.config import GatewayConfig
    from blockserver.gateway.manner import Manner
    from blockserver.gateway.running import run_gateway
    from swarm.dht.addresses import parse_peer_addresses

    demo = find_demo()
    folder = model or (demo.model if demo else None)
    peers = initial_peers or ([demo.bootstrap] if demo else [])
    if folder is None or not peers:
        options.usage("gateway: no demo runs from this folder, so --model and --initial-peers are needed")
    config = options.checked(
        lambda: GatewayConfig(
            model=folder,
            initial_peers=parse_peer_addresses(peers),
            prefix=prefix,
            dtype=dtype,
            host=gateway_host,
            port=gateway_port,
            site=site or (demo.site if demo else None),
            coordinator=coordinator,
            api_keys=_words(api_keys),
            trusted_proxies=_words(trusted_proxies),
            max_concurrent=max_concurrent,
            max_waiting=max_waiting,
            max_waiting_each=max_waiting_each,
            max_length=max_length,
            manner=Manner(temperature, top_p, top_k),
            relay=relay,
            ready_file=ready_file,
        )
    )
    raise typer.Exit(run_until_stopped(lambda stop: run_gateway(config, stop)))


def _words(given: list[str]) -> tuple[str, ...]:
    """Several in one, with commas or blanks between, as in a variable of the environment."""
    return tuple(text for words in given for text in words.replace(",", " ").split())
