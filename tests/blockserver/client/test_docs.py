"""What docs/client.md shows can be typed in: its code runs, block after block, over a real swarm on loopback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from blockserver import AutoDistributedModelForCausalLM
from swarm.errors import SwarmError
from tests.blockserver.client.threaded import Swarm
from tests.blockserver.client.words import word_tokenizer

PAGE = Path(__file__).resolve().parents[3] / "docs" / "client.md"
FOLDER, ADDRESS = '"FOLDER-OR-REPOSITORY"', '"/ip4/203.0.113.7/tcp/31330/p2p/PEER-ID"'


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_block_of_the_page_runs(
    tiny: tuple[Path, PreTrainedModel],
    threaded: Swarm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a model that cannot write: what it says does not matter here, but that it says something at every print."""
    folder = tmp_path / threaded.prefix
    folder.mkdir()
    for file in tiny[0].iterdir():
        (folder / file.name).symlink_to(file)
    word_tokenizer().save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    first, *others = blocks()
    assert first.count(FOLDER) == first.count(ADDRESS) == 1
    first = first.replace(FOLDER, repr(str(folder))).replace(ADDRESS, repr(threaded.addresses[0]))
    namespace: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate([first, *others]):
        capsys.readouterr()
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), namespace)
        assert bool(capsys.readouterr().out) == ("print(" in block), block
    assert (tmp_path / "learned.safetensors").is_file()


@pytest.mark.slow
def test_the_example_teaches_its_sentences(
    tiny: tuple[Path, PreTrainedModel], threaded: Swarm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples import prompt_tuning

    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny[0].iterdir():
        (folder / file.name).symlink_to(file)
    word_tokenizer([word for sentence in prompt_tuning.SENTENCES for word in sentence.split()]).save_pretrained(folder)
    saved = tmp_path / "learned.safetensors"
    prompt_tuning.main(
        [
            *("--model", str(folder), "--initial-peers", *threaded.addresses, "--dht-prefix", threaded.prefix),
            *("--steps", "80", "--rate", "0.05", "--save", str(saved)),
        ]
    )
    printed = capsys.readouterr().out
    for sentence in prompt_tuning.SENTENCES:
        assert sentence in printed
    assert saved.is_file()


def test_errors_that_the_page_names_are_there() -> None:
    import swarm.errors

    named = set(re.findall(r"`(\w+Error|MissingBlocks)`", PAGE.read_text(encoding="utf-8")))
    assert named
    assert all(issubclass(getattr(swarm.errors, name), SwarmError) for name in named)
    assert AutoDistributedModelForCausalLM.__name__ in PAGE.read_text(encoding="utf-8")
