"""The machine -> facts. A door: it looks and judges nothing. What the network says comes from `meet`."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import stat
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import psutil
import torch
from hivemind.p2p import PeerID

from blockserver.config import LoadConfig
from blockserver.devices import find_devices
from blockserver.doctor import meet
from blockserver.doctor.facts import Facts, Folder, Gpu, Identity, Memory
from blockserver.doctor.wishes import Wishes
from blockserver.model.capacity import blocks_that_fit
from blockserver.serving import loading
from swarm.dht.addresses import parse_peer_addresses
from swarm.errors import LocalError

STATE_BYTES = 50_000_000
CACHE_BYTES = 2_000_000_000
"""One shard of a large model is about as large."""
PCI = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY = "0x10de", "0x03"


async def gather(wishes: Wishes) -> Facts:
    facts = look_at_machine(wishes)
    try:
        peers = parse_peer_addresses(wishes.initial_peers)
    except LocalError as problem:
        facts = replace(facts, addresses_problem=str(problem))
        peers = ()
    return await meet.look_around(facts, wishes, peers)


def look_at_machine(wishes: Wishes) -> Facts:
    memory, prefix, problem = _memory(wishes)
    return Facts(
        own_version=f"sepal-{version('sepal')}",
        gpu=look_at_gpus(),
        memory=memory,
        open_files_limit=_open_files_limit(),
        folders=(
            look_at_folder("state", wishes.state_dir, STATE_BYTES),
            look_at_folder("cache", wishes.cache_dir, CACHE_BYTES if _is_from_hub(wishes.model) else 0),
        ),
        identity=look_at_identity(wishes.identity_path) if wishes.identity_path else None,
        model_problem=problem,
        prefix=wishes.prefix or prefix,
        site=wishes.coordinator.rstrip("/") if wishes.coordinator else None,
        relay=wishes.relay,
        arguments=_arguments(wishes),
    )


def look_at_gpus(pci: Path = PCI) -> Gpu:
    usable = tuple(str(device) for device in find_devices() if device.name != "cpu")
    error = None
    if torch.version.cuda is not None and not usable:
        try:
            torch.cuda.current_device()
        # Door: what a missing or broken driver raises differs between torch's versions.
        except Exception as problem:
            error = str(problem).splitlines()[0][:200]
    return Gpu(_nvidia_hardware(pci), usable, torch.version.cuda is not None, error)


def look_at_folder(purpose: str, path: Path, needed_bytes: int) -> Folder:
    """A folder that is not there yet is judged by the nearest one above it; nothing is made."""
    above = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    if not above.is_dir():
        return Folder(purpose, path, None, needed_bytes, f"{above} is no folder")
    if not os.access(above, os.W_OK | os.X_OK):
        return Folder(purpose, path, None, needed_bytes, f"{above} belongs to somebody else")
    return Folder(purpose, path, shutil.disk_usage(above).free, needed_bytes)


def look_at_identity(path: Path) -> Identity:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        PeerID.from_identity(path.read_bytes())
    except FileNotFoundError:
        folder = look_at_folder("identity", path.parent, 0)
        return Identity(path, problem=folder.problem)
    except OSError as problem:
        return Identity(path, problem=problem.strerror or str(problem))
    # Door: a broken key file fails in protobuf, in cryptography or in hivemind.
    except Exception as problem:
        return Identity(path, problem=f"it holds no private key ({type(problem).__name__})")
    return Identity(path, mode)


def _memory(wishes: Wishes) -> tuple[Memory, str | None, str | None]:
    """Memory, the model's prefix, and why the model cannot be served."""
    free = psutil.virtual_memory().available
    if wishes.model is None or _is_from_hub(wishes.model):
        return Memory(free), None, None
    try:
        config = LoadConfig(model=Path(wishes.model), dtype=wishes.dtype, quant_type=wishes.quant_type)
        facts = loading.read_model(config)
        dtype = loading.dtype_of(config, facts)
        loading.require(config, facts.whole)
    except LocalError as problem:
        return Memory(free), None, str(problem)
    each = facts.bytes_per_block(dtype, wishes.quant_type) + wishes.cache_tokens * facts.cache_bytes_per_token(dtype)
    fit = blocks_that_fit(free, facts, dtype, wishes.cache_tokens, quantisation=wishes.quant_type)
    return Memory(free, each, fit, wishes.num_blocks, facts.num_blocks), facts.prefix, None


def _is_from_hub(model: str | None) -> bool:
    """`owner/name` as on a hub, and no folder here."""
    return model is not None and model.count("/") == 1 and not model.startswith((".", "/", "~")) and not Path(model).exists()


def _open_files_limit() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 2**31 if hard == resource.RLIM_INFINITY else hard


def _nvidia_hardware(pci: Path) -> tuple[str, ...]:
    found = []
    for device in sorted(pci.glob("*")):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            found.append(f"NVIDIA card at PCI {device.name}")
    return tuple(found)


def _arguments(wishes: Wishes) -> str:
    """What was typed, for the next command; the token stays out."""
    words = [wishes.model] if wishes.model else []
    if wishes.initial_peers:
        words += ["--initial-peers", *wishes.initial_peers]
    if wishes.coordinator:
        words += ["--coordinator", wishes.coordinator]
    # What the memory was reckoned with: the server would hold other blocks without.
    words += [] if wishes.dtype == "auto" else ["--dtype", wishes.dtype]
    words += [] if wishes.quant_type == "none" else ["--quant-type", wishes.quant_type]
    return shlex.join(words)
