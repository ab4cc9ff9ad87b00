"""Options that several commands share. Each has a name, the environment variable made from it (`--num-blocks`:
SEPAL_NUM_BLOCKS), the same key in the settings file, and one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from blockserver.running import EXIT_USAGE
from swarm.errors import LocalError

T = TypeVar("T")


def flag(help_text: str, *names: str) -> Any:
    """The first name is the one to teach; the others are Petals' or older ones."""
    return typer.Option(*names, envvar=environment_name(names[0]), help=help_text, show_envvar=False)


def environment_name(flag_name: str) -> str:
    return "SEPAL_" + flag_name.split("/")[0].strip("-").upper().replace("-", "_")


InitialPeers = Annotated[list[str], flag("Addresses of peers, ending in /p2p/PEER_ID; several may follow.", "--initial-peers")]
Also = Annotated[
    list[str],
    flag(
        "A further model that the server may change to where it lacks servers: MODEL or MODEL=PREFIX. May be repeated.",
        "--also",
    ),
]
Prefix = Annotated[str | None, flag("The model's name in the DHT.", "--prefix", "--dht-prefix")]
HostMaddrs = Annotated[list[str], flag("Where to listen, such as /ip4/0.0.0.0/tcp/31330.", "--host-maddrs")]
AnnounceMaddrs = Annotated[list[str], flag("Addresses to tell others, if not those listened on.", "--announce-maddrs")]
Port = Annotated[int | None, flag("Listen on this TCP port; by default any free one.", "--port")]
PublicIp = Annotated[str | None, flag("This machine's address as others see it; needs --port.", "--public-ip")]
IdentityPath = Annotated[Path | None, flag("Key file, so that the peer id stays the same; made if missing.", "--identity-path")]
ReadyFile = Annotated[Path | None, flag("Write a JSON file here when ready.", "--ready-file")]
PortMapping = Annotated[bool, flag("Ask the local gateway to open a port (UPnP, NAT-PMP).", "--nat-port-map/--no-nat-port-map")]
Relay = Annotated[
    bool, flag("Be reachable through other peers from behind a NAT.", "--relay/--no-relay", "--auto-relay/--no-auto-relay")
]
Coordinator = Annotated[str | None, flag("The site whose hints to follow.", "--coordinator")]
ReportTo = Annotated[
    str | None, flag("The site to tell, once a minute at most, which servers failed and how fast they were.", "--coordinator")
]
Site = Annotated[str | None, flag("Address of the site.", "--site")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
NumBlocks = Annotated[int | None, flag("Blocks to serve; by default as many as fit in memory.", "--num-blocks")]
BlockIndices = Annotated[str | None, flag("Serve just these blocks, as in 0:18, and never move.", "--block-indices")]
Dtype = Annotated[str, flag("auto, float32, bfloat16 or float16.", "--dtype", "--torch-dtype")]
CacheTokens = Annotated[int, flag("Attention cache in tokens, per block.", "--cache-tokens", "--attn-cache-tokens")]
Device = Annotated[str | None, flag("cpu, cuda, cuda:1 or mps; by default the fastest there is.", "--device")]
QuantType = Annotated[str, flag("none, int8 or nf4.", "--quant-type")]
Adapters = Annotated[list[str], flag("LoRA adapters to offer; may be repeated.", "--adapters")]
Revision = Annotated[str | None, flag("The model's revision on the hub.", "--revision")]
Token = Annotated[
    str | None, flag("Token for a hub that asks for one. Better in the environment than on a command line.", "--token")
]
CacheDir = Annotated[Path | None, flag("Where downloaded models are kept.", "--cache-dir")]
MaxDiskSpace = Annotated[str | None, flag("Size of that folder at most, as in 300GB.", "--max-disk-space")]
StateDir = Annotated[Path | None, flag("Where measured rates are kept between starts.", "--state-dir")]


def listen_addresses(host_maddrs: list[str], port: int | None) -> tuple[str, ...]:
    from swarm.dht.addresses import parse_listen_addresses

    if host_maddrs and port is not None:
        raise LocalError("--port and --host-maddrs both say where to listen: give one of them")
    return parse_listen_addresses(host_maddrs or [f"/ip4/0.0.0.0/tcp/{port or 0}"])


def announced_addresses(announce_maddrs: list[str], public_ip: str | None, port: int | None) -> tuple[str, ...]:
    from swarm.dht.addresses import parse_listen_addresses

    if public_ip is None:
        return parse_listen_addresses(announce_maddrs)
    if port is None or announce_maddrs:
        raise LocalError("--public-ip goes with --port, and without --announce-maddrs")
    return parse_listen_addresses([f"/ip{6 if ':' in public_ip else 4}/{public_ip}/tcp/{port}"])


def checked(make: Callable[[], T]) -> T:
    """What the operator typed, as settings; a fault in it is a usage error."""
    try:
        return make()
    except LocalError as error:
        usage(str(error))


def usage(text: str) -> NoReturn:
    typer.echo(f"sepal: {text}", err=True)
    raise typer.Exit(EXIT_USAGE)
