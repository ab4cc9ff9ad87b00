"""`sepal doctor` and `sepal bench`: for those who look at their own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockserver.commands import options
from blockserver.commands.options import flag
from blockserver.demo_file import find_demo
from blockserver.running import run


def bench(
    model: Annotated[Path | None, typer.Argument(help="Folder of the model.", envvar="SEPAL_MODEL")] = None,
    num_blocks: options.NumBlocks = None,
    dtype: options.Dtype = "auto",
    device: options.Device = None,
    quant_type: options.QuantType = "none",
    cache_tokens: options.CacheTokens = 4096,
    as_json: options.AsJson = False,
) -> None:
    from blockserver.config import LoadConfig
    from blockserver.serving.bench import run_bench

    demo = find_demo()
    folder = model or (demo.model if demo else None)
    if folder is None:
        options.usage("bench: which model? `sepal bench FOLDER`")
    config = options.checked(lambda: LoadConfig(model=folder, dtype=dtype, device=device, quant_type=quant_type))
    raise typer.Exit(run(run_bench(config, num_blocks, cache_tokens, as_json=as_json)))


def doctor(
    model: Annotated[str | None, typer.Argument(help="Folder of the model to serve.", envvar="SEPAL_MODEL")] = None,
    initial_peers: options.InitialPeers = [],  # noqa: B006
    coordinator: options.Coordinator = None,
    prefix: options.Prefix = None,
    num_blocks: options.NumBlocks = None,
    port: options.Port = None,
    public_ip: options.PublicIp = None,
    host_maddrs: options.HostMaddrs = [],  # noqa: B006
    announce_maddrs: options.AnnounceMaddrs = [],  # noqa: B006
    identity_path: options.IdentityPath = None,
    dtype: options.Dtype = "auto",
    quant_type: options.QuantType = "none",
    token: options.Token = None,
    hub: Annotated[str, flag("The model hub's address.", "--hub")] = "https://huggingface.co",
    cache_dir: options.CacheDir = None,
    state_dir: options.StateDir = None,
    cache_tokens: options.CacheTokens = 4096,
    nat_port_map: options.PortMapping = True,
    relay: options.Relay = True,
    as_json: options.AsJson = False,
) -> None:
    from blockserver.doctor.report import run_doctor
    from blockserver.doctor.wishes import Wishes
    from blockserver.places import cache_folder, state_folder

    wishes = options.checked(
        lambda: Wishes(
            model=model,
            initial_peers=tuple(text for given in initial_peers for text in given.replace(",", " ").split()),
            coordinator=coordinator,
            prefix=prefix,
            num_blocks=num_blocks,
            listen=options.listen_addresses(host_maddrs, port),
            announce=options.announced_addresses(announce_maddrs, public_ip, port),
            identity_path=identity_path,
            dtype=dtype,
            quant_type=quant_type,
            token=token,
            hub=hub,
            cache_dir=cache_dir or cache_folder(),
            state_dir=state_dir or state_folder(),
            cache_tokens=cache_tokens,
            port_mapping=nat_port_map,
            relay=relay,
        )
    )
    raise typer.Exit(run_doctor(wishes, as_json=as_json))
