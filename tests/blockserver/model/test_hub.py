"""A model is fetched from a hub shard by shard, and what goes wrong is said in words that help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.embeddings import load_ends
from blockserver.model import hub as hub_module
from blockserver.model.blocks import load_span
from blockserver.model.cache_folder import Hold
from blockserver.model.hub import HubDown, Source, blocks_on_disk, bytes_to_fetch, fetch_ends, fetch_facts, fetch_span
from blockserver.model.model_source import facts_of, load
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.blockserver.fake_hub import COMMIT, TOKEN, FakeHub, running

NAME = "someone/Tiny.Model"


@pytest.fixture
def hub(tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)  # between the library's own retries
    with running(FakeHub({NAME: tiny[0]})) as started:
        monkeypatch.setenv("HF_ENDPOINT", started.url)
        yield started


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(NAME, tmp_path / "cache")


def shards_of(folder: Path, span: Span) -> set[str]:
    files = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    return {file for name, file in files.items() if name.startswith(tuple(f"model.layers.{block}." for block in span))}


def test_only_the_shards_of_the_span_are_fetched(hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel]) -> None:
    span = Span(2, 4)
    module = load(source, span, torch.float32)
    fetched = {name for name in hub.downloads() if name.endswith(".safetensors")}
    assert fetched == shards_of(tiny[0], span)
    hidden = torch.randn(1, 5, 32)
    with torch.inference_mode():
        torch.testing.assert_close(module.forward(hidden), load_span(tiny[0], span, torch.float32).forward(hidden))


def test_its_name_in_the_swarm_is_that_of_the_repository(hub: FakeHub, source: Source) -> None:
    facts = facts_of(source)
    assert facts.prefix == "Tiny-Model"
    assert facts.folder.name == COMMIT
    assert not any(name.endswith(".safetensors") for name in hub.downloads())


def test_the_client_fetches_the_ends_only(hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel]) -> None:
    folder = fetch_ends(source).folder
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(
        load_ends(folder, torch.float32).embed(ids), load_ends(tiny[0], torch.float32).embed(ids), atol=0, rtol=0
    )
    assert sum(name.endswith(".safetensors") for name in hub.downloads()) < len(list(tiny[0].glob("*.safetensors")))


def test_what_is_there_is_not_fetched_again(hub: FakeHub, source: Source) -> None:
    expected = bytes_to_fetch(source, Span(0, 2))
    first = fetch_span(source, Span(0, 2))
    assert first.downloaded_bytes == expected
    assert bytes_to_fetch(source, Span(0, 2)) == 0
    hub.requests.clear()
    second = fetch_span(source, Span(0, 2))
    assert hub.downloads() == []
    assert (first.downloaded_bytes > 0, second.downloaded_bytes) == (True, 0)


def test_the_blocks_on_the_disk_are_known_without_asking_the_hub(
    hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel]
) -> None:
    assert blocks_on_disk(source, 6) == (), "nothing was ever asked for"
    facts_of(source)
    assert blocks_on_disk(source, 6) == ()
    load(source, Span(2, 4), torch.float32)
    asked = len(hub.requests)
    there = {block for span in blocks_on_disk(source, 6) for block in span}
    assert {2, 3} <= there and len(hub.requests) == asked
    fetched = shards_of(tiny[0], Span(2, 4))
    assert there == {block for block in range(6) if shards_of(tiny[0], Span(block, block + 1)) <= fetched}
    (source.cache / NAME.replace("/", "--") / COMMIT / sorted(shards_of(tiny[0], Span(3, 4)))[0]).unlink()
    assert 3 not in {block for span in blocks_on_disk(source, 6) for block in span}


def test_a_family_that_cannot_be_served_is_refused_before_any_weights_come(
    hub: FakeHub, source: Source, tmp_path: Path
) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    hub.folders[NAME] = odd
    with pytest.raises(LocalError, match="keep a running state"):
        fetch_span(source, Span(0, 1))
    assert hub.downloads() == ["config.json"]


def test_a_download_that_breaks_off_goes_on_where_it_stopped(
    hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)
    hub.cut_after = 10_000
    folder = fetch_span(source, Span(0, 1)).folder
    for name in shards_of(tiny[0], Span(0, 1)):
        assert (folder / name).read_bytes() == (tiny[0] / name).read_bytes()
    asked = [requested for method, _, _, requested in hub.requests if method == "GET"]
    assert "bytes=10000-" in asked and "bytes=20000-" in asked


def test_so_does_one_of_an_earlier_run(hub: FakeHub, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)
    hub.cut_after, hub.dies = 1_500, True
    with pytest.raises(HubDown):
        fetch_span(source, Span(0, 1))
    assert [file.stat().st_size for file in source.cache.rglob("*.unfinished")] == [1_500]
    hub.cut_after = None
    hub.requests.clear()
    fetch_span(source, Span(0, 1))
    assert "bytes=1500-" in [requested for method, _, _, requested in hub.requests if method == "GET"]
    assert not list(source.cache.rglob("*.unfinished"))


def test_progress_covers_download_and_reading(hub: FakeHub, source: Source) -> None:
    seen: list[tuple[int, int, float]] = []
    load(source, Span(1, 4), torch.float32, progress=lambda *figures: seen.append(figures))
    shares = [done / total for done, total, _ in seen if total]
    assert shares == sorted(shares) and shares[0] < 0.2 and shares[-1] == 1.0
    assert len(set(shares)) > 4
    seconds = [second for *_, second in seen]
    assert seconds == sorted(seconds)


def test_the_token_goes_to_the_hub_and_not_to_where_it_stores_files(
    hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel]
) -> None:
    with running(FakeHub({NAME: tiny[0]})) as storage:
        hub.storage, hub.gated = storage.url, {NAME}
        load(replace(source, token=TOKEN), Span(0, 1), torch.float32)
        assert {authorization for _, _, authorization, _ in hub.requests} == {f"Bearer {TOKEN}"}
        assert storage.downloads() and {authorization for _, _, authorization, _ in storage.requests} == {None}


def test_without_a_token_none_is_sent(hub: FakeHub, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the one that the machine has lying about."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    fetch_facts(source)
    assert {authorization for _, _, authorization, _ in hub.requests} == {None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"repository": "someone/Else"}, "has no repository someone/Else, or it is private: pass a token"),
        ({"repository": "../../etc"}, "is no repository's name"),
        ({"revision": "v9"}, "has no revision 'v9'"),
        ({"repository": "closed/Model"}, "closed/Model is gated: accept its terms on the hub, and pass a token"),
        ({"repository": "closed/Model", "token": "hf_bad"}, "is gated: accept its terms on the hub, and check a token"),
        ({"repository": "empty/Model"}, r"holds no config\.json"),
        ({"limit_bytes": 10_000}, "take 0.0 GB of shards, and the cache folder may hold 0.0 GB; raise the limit"),
    ],
)
def test_what_goes_wrong_is_said_plainly(
    hub: FakeHub, source: Source, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    (tmp_path / "empty").mkdir()
    hub.folders |= {"closed/Model": hub.folders[NAME], "empty/Model": tmp_path / "empty"}
    hub.gated = {"closed/Model"}
    with pytest.raises(LocalError, match=reason):
        fetch_span(replace(source, **changes), Span(0, 3))


def test_a_file_that_comes_broken_is_thrown_away(hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel]) -> None:
    hub.spoiled = shards_of(tiny[0], Span(0, 1))
    with pytest.raises(HubDown, match="came broken"):
        fetch_span(source, Span(0, 1))
    hub.spoiled = set()
    assert fetch_span(source, Span(0, 1)).downloaded_bytes > 0


def test_with_the_hub_out_of_reach_what_was_fetched_is_served(hub: FakeHub, source: Source) -> None:
    fetch_span(source, Span(0, 1))
    gone = replace(source, endpoint="http://127.0.0.1:9")
    assert fetch_span(gone, Span(0, 1)).downloaded_bytes == 0
    with pytest.raises(HubDown, match="was not downloaded before"):
        fetch_span(gone, Span(0, 6))
    with pytest.raises(HubDown, match="the hub cannot be reached for other/Model"):
        fetch_span(replace(gone, repository="other/Model"), Span(0, 1))


def test_a_full_disk_is_said_before_anything_comes(hub: FakeHub, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 1_000}))
    with pytest.raises(LocalError, match="do not fit into the cache folder"):
        fetch_span(source, Span(0, 1))
    assert not any(name.endswith(".safetensors") for name in hub.downloads())


def test_a_folder_that_cannot_be_written_to_is_said(hub: FakeHub, source: Source, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match="cannot be written to"):
        fetch_facts(replace(source, cache=tmp_path / "file" / "cache"))


def test_shards_of_another_span_make_room_and_those_in_use_stay(
    hub: FakeHub, source: Source, tiny: tuple[Path, PreTrainedModel]
) -> None:
    sizes = {file.name: file.stat().st_size for file in tiny[0].glob("*.safetensors")}
    kept, other, third = (shards_of(tiny[0], Span(block, block + 1)) for block in (0, 5, 3))
    assert not kept & other and not third & (kept | other)
    limit = sum(sizes[name] for name in kept) + max(sum(sizes[name] for name in one) for one in (other, third))
    small = replace(source, limit_bytes=limit)
    in_use = fetch_span(small, Span(0, 1))
    fetch_span(small, Span(5, 6)).hold.release()
    fetch_span(small, Span(3, 4)).hold.release()
    left = {file.name for file in source.cache.rglob("*.safetensors")}
    assert kept <= left and third <= left and not other <= left
    in_use.hold.release()


def test_paths_of_shards_stay_within_the_folder(hub: FakeHub, source: Source, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "config.json").write_text((hub.folders[NAME] / "config.json").read_text())
    (evil / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"model.layers.0.mlp.up_proj.weight": "../../outside.safetensors"}})
    )
    hub.folders[NAME] = evil
    with pytest.raises(LocalError, match="outside its folder"):
        fetch_span(source, Span(0, 1))


def test_a_fetch_that_fails_keeps_no_files_locked(hub: FakeHub, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    holds: list[Hold] = []

    class Watched(Hold):
        def __init__(self) -> None:
            super().__init__()
            holds.append(self)

    monkeypatch.setattr(hub_module, "Hold", Watched)
    fetch_span(source, Span(0, 1)).hold.release()
    hub.cut_after = 10
    with pytest.raises(HubDown):
        fetch_span(source, Span(0, 6))
    assert all(not hold._opened for hold in holds)
