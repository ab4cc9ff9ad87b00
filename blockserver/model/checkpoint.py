"""Which file of a safetensors checkpoint holds which tensor, and reading some of them.

Knows the two layouts on disk, one file or shards with an index; does not know what the tensors are for. Everything that is
missing is said before anything is read.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from swarm.errors import LocalError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`files` says for each tensor's name the file that holds it, relative to `folder`."""

    folder: Path
    files: Mapping[str, str]

    def require(self, names: Collection[str]) -> None:
        """LocalError, naming the files, where a shard that holds one of these tensors is not there."""
        absent = sorted({self.files[name] for name in names if not (self.folder / self.files[name]).is_file()})
        if absent:
            raise LocalError(f"{self.folder} lacks {_listed(absent)}, which {INDEX} names")

    def read(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """The tensors, mapped from their files rather than copied. Calls `require` first."""
        self.require(names)
        tensors: dict[str, torch.Tensor] = {}
        for file, held in self._by_file(names).items():
            with _opened(self.folder / file) as shard:
                present = set(shard.keys())
                absent = sorted(set(held) - present)
                if absent:
                    raise LocalError(f"{self.folder / file} lacks the tensors {_listed(absent)}")
                tensors.update({name: shard.get_tensor(name) for name in held})
        return tensors

    def nbytes(self, names: Collection[str]) -> int:
        """What these tensors take on disk, by the shards' headers. Calls `require` first."""
        self.require(names)
        total = 0
        for file, held in self._by_file(names).items():
            header = _read_header(self.folder / file)
            total += sum(end - start for start, end in (header[name] for name in held if name in header))
        return total

    def _by_file(self, names: Collection[str]) -> dict[str, list[str]]:
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_file[self.files[name]].append(name)
        return by_file


def open_checkpoint(folder: Path) -> Checkpoint:
    """Raises LocalError where the folder holds no safetensors checkpoint."""
    index = folder / INDEX
    if index.is_file():
        return Checkpoint(folder, _read_index(index))
    if (folder / SINGLE).is_file():
        with _opened(folder / SINGLE) as file:
            return Checkpoint(folder, dict.fromkeys(file.keys(), SINGLE))
    raise LocalError(f"{folder} holds neither {INDEX} nor {SINGLE}; weights are read from safetensors files only")


def _read_index(index: Path) -> dict[str, str]:
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise LocalError(f"{index} is no index of safetensors shards: {error}") from error
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise LocalError(f"{index} is no index of safetensors shards: its weight_map is no map of names to files")
    strangers = sorted({file for file in files.values() if Path(file).name != file})
    if strangers:
        # A shard lies beside its index; a path in its place could name any file of this machine.
        raise LocalError(f"{index} names files outside its folder: {_listed(strangers)}")
    return files


def _read_header(file: Path) -> dict[str, tuple[int, int]]:
    """Name of each tensor -> where it lies. safetensors itself has no way to ask for this."""
    with _opened(file):  # checks the header, its length above all
        pass
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(length))
    return {name: tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__"}


def _opened(file: Path) -> safe_open:
    try:
        return safe_open(str(file), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise LocalError(f"{file} cannot be read as safetensors (a broken download?): {error}") from error


def _listed(names: Collection[str], limit: int = 5) -> str:
    shown = ", ".join(list(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
