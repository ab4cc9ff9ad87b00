"""From a name and some addresses to a model, or to a sentence that says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver import AutoDistributedModelForCausalLM
from swarm.errors import LocalError, MissingBlocks, Unreachable
from swarm.wire.spans import Span
from tests.blockserver.client.threaded import QUICK, Swarm
from tests.blockserver.fake_hub import FakeHub, running

IDS = torch.tensor([[5, 17, 42, 8]])
NOBODY = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"

Whole = tuple[Path, PreTrainedModel]


def test_naming_the_package_loads_nothing_heavy() -> None:
    program = "import blockserver, sys; print([name for name in ('torch', 'transformers', 'hivemind') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
    import blockserver

    with pytest.raises(AttributeError, match="no attribute 'AutoModel'"):
        _ = blockserver.AutoModel  # type: ignore[attr-defined]


def test_a_repository_is_fetched_but_for_its_blocks(
    tiny: Whole, threaded: Swarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(FakeHub({"owner/tiny": tiny[0]})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with AutoDistributedModelForCausalLM.from_pretrained(
            "owner/tiny", initial_peers=threaded.addresses, cache_dir=tmp_path, dht_prefix=threaded.prefix
        ) as model:
            torch.testing.assert_close(model(IDS).logits, tiny[1](IDS).logits, atol=1e-4, rtol=0)
        shards = [name for name in hub.downloads() if name.endswith(".safetensors")]
        assert 0 < len(shards) < len(list(tiny[0].glob("*.safetensors")))


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16, "torch.bfloat16"])
def test_the_ends_are_in_the_dtype_asked_for(dtype: str | torch.dtype, tiny: Whole, threaded: Swarm) -> None:
    with AutoDistributedModelForCausalLM.from_pretrained(tiny[0], initial_peers=threaded.addresses, dtype=dtype) as model:
        assert model.dtype is torch.bfloat16
        logits = model(IDS).logits
    assert logits.dtype is torch.bfloat16
    torch.testing.assert_close(logits.float(), tiny[1](IDS).logits, atol=0.3, rtol=0.1)


def test_generation_heeds_the_models_own_settings(tiny: Whole, threaded: Swarm, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for file in tiny[0].iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text('{"max_new_tokens": 3, "eos_token_id": null, "pad_token_id": 0}')
    with AutoDistributedModelForCausalLM.from_pretrained(folder, initial_peers=threaded.addresses) as model:
        assert model.generate(IDS).shape == (1, 7)


def test_servers_may_be_allowed_or_blocked(tiny: Whole, threaded: Swarm) -> None:
    middle = threaded.peers[Span(2, 4)]
    others = [peer for peer in threaded.peers.values() if peer != middle]
    for restriction in ({"blocked_servers": [middle]}, {"allowed_servers": others}):
        with AutoDistributedModelForCausalLM.from_pretrained(
            tiny[0], initial_peers=threaded.addresses, patience=QUICK, **restriction
        ) as model:
            with pytest.raises(MissingBlocks, match="blocks 2–3"):
                model.generate(IDS, max_new_tokens=2)
            with pytest.raises(MissingBlocks, match="blocks 2–3"):
                model(IDS)


def test_what_is_wrong_is_said(tiny: Whole, tmp_path: Path) -> None:
    load = AutoDistributedModelForCausalLM.from_pretrained
    with pytest.raises(LocalError, match=r"use AutoDistributedModelForCausalLM\.from_pretrained"):
        AutoDistributedModelForCausalLM()
    with pytest.raises(LocalError, match="there is no model folder"):
        load(tmp_path / "nowhere", initial_peers=[NOBODY])
    with pytest.raises(LocalError, match="initial_peers is empty"):
        load(tiny[0], initial_peers=[])
    with pytest.raises(LocalError, match="'int8' is none that hidden states can have"):
        load(tiny[0], initial_peers=[NOBODY], dtype="int8")
    with pytest.raises(Unreachable, match="no bootstrap peer answers"):
        load(tiny[0], initial_peers=[NOBODY])


def test_a_closed_model_says_so(tiny: Whole, threaded: Swarm) -> None:
    with AutoDistributedModelForCausalLM.from_pretrained(tiny[0], initial_peers=threaded.addresses) as model:
        pass
    model.close()
    with pytest.raises(LocalError, match="connection to the swarm is closed"):
        model(IDS)
