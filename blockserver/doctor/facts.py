"""What the doctor knows. None means: not found out, which is never a fault by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Gpu:
    """`hardware` are NVIDIA cards that the kernel lists, with or without a driver; `usable` those torch computes on."""

    hardware: tuple[str, ...] = ()
    usable: tuple[str, ...] = ()
    torch_has_cuda: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """`block_bytes` is one block with its attention cache; `fit` counts blocks, `wanted` is what the operator asked for."""

    free_bytes: int
    block_bytes: int | None = None
    fit: int | None = None
    wanted: int | None = None
    num_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    purpose: str
    path: Path
    free_bytes: int | None
    needed_bytes: int
    problem: str | None = None
    """Why nothing can be written there."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`mode` is the file's permission bits; None while there is no file yet."""

    path: Path
    mode: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """One address of `--initial-peers`. `speaks_dht` is True where the peer there answers hivemind's DHT."""

    address: str
    reached: bool
    speaks_dht: bool = False
    detail: str = ""
    clock_ahead_s: float | None = None
    """The peer's clock less this machine's."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """`models` are prefixes with their number of blocks; `versions` what servers of our kind announce, one entry a server."""

    models: Mapping[str, int]
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """`reachable` as the site or else peers say; `taken` where another program listens there already."""

    listen: tuple[str, ...]
    reachable: bool | None = None
    detail: str = ""
    taken: str | None = None


@dataclass(frozen=True, slots=True)
class Internet:
    """Whether there is a route for each family; `needs_*` whether the given addresses use it, loopback aside."""

    ipv4: bool
    ipv6: bool
    needs_ipv4: bool
    needs_ipv6: bool
    only_ipv4_listens: bool = False


@dataclass(frozen=True, slots=True)
class Hub:
    """`status` is the HTTP status with which the hub answered to the token."""

    address: str
    token_given: bool
    status: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    own_version: str
    gpu: Gpu
    memory: Memory
    open_files_limit: int
    """The hard limit: `serve` raises the soft one to it by itself."""

    folders: tuple[Folder, ...] = ()
    identity: Identity | None = None
    model_problem: str | None = None
    prefix: str | None = None
    addresses_problem: str | None = None
    """Why the addresses given cannot be used, before anything was dialled."""

    bootstraps: tuple[Bootstrap, ...] = ()
    swarm: Swarm | None = None
    site: str | None = None
    site_problem: str | None = None
    site_models: tuple[str, ...] | None = None
    port: Port | None = None
    relay: bool = True
    internet: Internet = field(default_factory=lambda: Internet(True, True, False, False))
    hub: Hub | None = None
    arguments: str = ""
    """What was typed, for the next command; without the token."""
