"""Facts -> findings about this machine. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from blockserver.doctor.facts import Facts, Folder, Gpu, Identity
from blockserver.doctor.findings import Finding, error, ok, skipped

MIN_OPEN_FILES = 4_096
"""libp2p holds a file for each connection, and a server of a large swarm has a thousand of them."""


def check_gpu(facts: Facts) -> Iterator[Finding]:
    gpu = facts.gpu
    if gpu.usable:
        yield ok("gpu", "; ".join(gpu.usable))
    elif gpu.hardware:
        yield error("gpu", f"{gpu.hardware[0]} is there, but cannot be used: {_why(gpu)}", *_gpu_fix(gpu))
    else:
        yield ok("gpu", "none; blocks are computed on the CPU")


def _why(gpu: Gpu) -> str:
    if not gpu.torch_has_cuda:
        return "this torch was built without CUDA"
    return gpu.error or "no NVIDIA driver answers"


def _gpu_fix(gpu: Gpu) -> tuple[str, str]:
    if not gpu.torch_has_cuda:
        return "install a torch with CUDA", "python -m pip install --force-reinstall torch"
    return "install or reload NVIDIA's driver, then restart", "nvidia-smi"


def check_memory(facts: Facts) -> Iterator[Finding]:
    memory = facts.memory
    free = f"{memory.free_bytes / 1e9:.1f} GB free"
    if memory.block_bytes is None or memory.fit is None:
        yield ok("memory", free)
        return
    each = f"a block with its cache takes {_size(memory.block_bytes)}"
    if memory.fit < 1:
        yield error(
            "memory",
            f"{free}, and {each}",
            "free memory, or choose a smaller cache or a smaller model",
            f"sepal serve {facts.arguments} --cache-tokens 512",
        )
    elif memory.wanted is not None and memory.wanted > memory.fit:
        yield error(
            "memory",
            f"{free}: {memory.fit} blocks fit, {memory.wanted} are wanted",
            f"serve {memory.fit} blocks",
            f"sepal serve {facts.arguments} --num-blocks {memory.fit}",
        )
    else:
        yield ok("memory", f"{free}: {memory.wanted or memory.fit} of {memory.num_blocks} blocks fit")


def check_folders(facts: Facts) -> Iterator[Finding]:
    for folder in facts.folders:
        yield _folder(folder)


def _folder(folder: Folder) -> Finding:
    quoted = shlex.quote(str(folder.path))
    name = f"{folder.purpose} folder"
    if folder.problem is not None:
        fix = f"give your user the folder, or choose another one with --{folder.purpose}-dir"
        return error(name, f"{folder.path} cannot be written: {folder.problem}", fix, f'sudo install -d -o "$USER" {quoted}')
    if folder.free_bytes is not None and folder.free_bytes < folder.needed_bytes:
        fact = f"{_size(folder.free_bytes)} free at {folder.path}, {_size(folder.needed_bytes)} are needed"
        return error("disk", fact, f"free space, or choose another disk with --{folder.purpose}-dir", f"df -h {quoted}")
    return ok(name, f"{folder.path}" + (f", {_size(folder.free_bytes)} free" if folder.free_bytes is not None else ""))


def check_identity(facts: Facts) -> Iterator[Finding]:
    identity = facts.identity
    if identity is None:
        yield skipped("identity", "a new peer id at each start; --identity-path keeps one")
        return
    yield _identity(identity)


def _identity(identity: Identity) -> Finding:
    quoted = shlex.quote(str(identity.path))
    if identity.problem is not None:
        fix = "put a good copy back, or move it away: a new one is made"
        return error("identity", f"{identity.path}: {identity.problem}", fix, f"mv {quoted} {quoted}.bad")
    if identity.mode is None:
        return ok("identity", f"{identity.path} is made at the first start")
    if identity.mode & 0o077:
        fact = f"{identity.path} may be read by others (mode {identity.mode:o}): whoever copies it can pose as this server"
        return error("identity", fact, "keep it to its owner", f"chmod 600 {quoted}")
    return ok("identity", str(identity.path))


def check_open_files(facts: Facts) -> Iterator[Finding]:
    limit = facts.open_files_limit
    if limit < MIN_OPEN_FILES:
        fix = f"allow {MIN_OPEN_FILES} (LimitNOFILE= in a unit, /etc/security/limits.conf for a login)"
        yield error("open files", f"at most {limit}, and each connection takes one", fix, f"ulimit -n {MIN_OPEN_FILES}")
    else:
        yield ok("open files", f"up to {limit}")


def check_model(facts: Facts) -> Iterator[Finding]:
    if facts.model_problem is not None:
        yield error(
            "model",
            facts.model_problem,
            "give a folder with config.json and its safetensors shards",
            "sepal serve --help=model",
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
