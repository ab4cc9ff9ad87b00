"""`sepal serve` and `sepal bootstrap`: the two that run until they are stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockserver.commands import options
from blockserver.commands.options import flag
from blockserver.running import run_until_stopped


def serve(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of the model: config.json and safetensors shards.", envvar="SEPAL_MODEL")
    ] = None,
    initial_peers: options.InitialPeers = [],  # noqa: B006
    coordinator: options.Coordinator = None,
    prefix: options.Prefix = None,
    also: options.Also = [],  # noqa: B006
    num_blocks: options.NumBlocks = None,
    block_indices: options.BlockIndices = None,
    port: options.Port = None,
    public_ip: options.PublicIp = None,
    host_maddrs: options.HostMaddrs = [],  # noqa: B006
    announce_maddrs: options.AnnounceMaddrs = [],  # noqa: B006
    identity_path: options.IdentityPath = None,
    public_name: Annotated[str | None, flag("Shown on the status page.", "--public-name")] = None,
    dtype: options.Dtype = "auto",
    device: options.Device = None,
    quant_type: options.QuantType = "none",
    adapters: options.Adapters = [],  # noqa: B006
    revision: options.Revision = None,
    token: options.Token = None,
    cache_dir: options.CacheDir = None,
    max_disk_space: options.MaxDiskSpace = None,
    cache_tokens: options.CacheTokens = 4096,
    throughput: Annotated[
        str, flag("auto (kept or measured), eval (measured anew), or tokens per second to announce.", "--throughput")
    ] = "auto",
    update_period: Annotated[float, flag("Seconds between announcements.", "--update-period")] = 120.0,
    hint_interval: Annotated[float, flag("Seconds between two questions to the coordinator.", "--hint-interval")] = 30.0,
    fallback_after: Annotated[
        float, flag("Seconds of a silent coordinator until the server decides by itself.", "--fallback-after")
    ] = 180.0,
    confirm: Annotated[
        float, flag("Seconds for which a hole found alone must last before the server moves.", "--confirm")
    ] = 60.0,
    min_dwell: Annotated[
        float, flag("Seconds to stay with the present blocks unless a hole must be filled.", "--min-dwell")
    ] = 600.0,
    skip_reachability_check: Annotated[
        bool, flag("Go ONLINE without asking others whether they can dial this server.", "--skip-reachability-check")
    ] = False,
    ready_file: options.ReadyFile = None,
    state_dir: options.StateDir = None,
    metrics_port: Annotated[
        int | None, flag("Prometheus metrics and /readyz on this port of 127.0.0.1; 0 takes a free one.", "--metrics-port")
    ] = None,
    nat_port_map: options.PortMapping = True,
    relay: options.Relay = True,
) -> None:
    from blockserver.config import ServeConfig, parse_also, parse_block_indices, parse_bytes, parse_throughput
    from blockserver.places import state_folder
    from blockserver.serving.server import serve as serve_blocks
    from swarm.dht.addresses import parse_peer_addresses

    if model is None:
        options.usage('serve: which model? `sepal serve FOLDER`, SEPAL_MODEL, or model = "…" in the settings file')
    config = options.checked(
        lambda: ServeConfig(
            model=model,
            initial_peers=parse_peer_addresses(initial_peers),
            coordinator=coordinator,
            prefix=prefix,
            also=tuple(map(parse_also, also)),
            num_blocks=num_blocks,
            block_indices=parse_block_indices(block_indices) if block_indices else None,
            listen=options.listen_addresses(host_maddrs, port),
            announce=options.announced_addresses(announce_maddrs, public_ip, port),
            identity_path=identity_path,
            port_mapping=nat_port_map,
            relay=relay,
            public_name=public_name,
            dtype=dtype,
            device=device,
            quant_type=quant_type,
            adapters=tuple(map(Path, adapters)),
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            max_disk_space=parse_bytes(max_disk_space) if max_disk_space else None,
            cache_tokens=cache_tokens,
            throughput=parse_throughput(throughput),
            update_period_s=update_period,
            hint_interval_s=hint_interval,
            fallback_after_s=fallback_after,
            confirm_s=confirm,
            min_dwell_s=min_dwell,
            check_reachability=not skip_reachability_check,
            ready_file=ready_file,
            state_dir=state_dir or state_folder(),
            metrics_port=metrics_port,
        )
    )
    raise typer.Exit(run_until_stopped(lambda stop: serve_blocks(config, stop)))


def bootstrap(
    initial_peers: options.InitialPeers = [],  # noqa: B006
    port: options.Port = None,
    public_ip: options.PublicIp = None,
    host_maddrs: options.HostMaddrs = [],  # noqa: B006
    announce_maddrs: options.AnnounceMaddrs = [],  # noqa: B006
    identity_path: options.IdentityPath = None,
    ready_file: options.ReadyFile = None,
    nat_port_map: options.PortMapping = True,
    relay: options.Relay = True,
) -> None:
    from blockserver.serving.bootstrap import run_bootstrap
    from swarm.dht.addresses import parse_peer_addresses
    from swarm.dht.node import NodeConfig

    config = options.checked(
        lambda: NodeConfig(
            initial_peers=parse_peer_addresses(initial_peers),
            listen=options.listen_addresses(host_maddrs, port),
            announce=options.announced_addresses(announce_maddrs, public_ip, port),
            identity_path=identity_path,
            port_mapping=nat_port_map,
            relay=relay,
        )
    )
    raise typer.Exit(run_until_stopped(lambda stop: run_bootstrap(config, ready_file, stop)))
