"""Fetching a model's files from a hub such as huggingface.co: those that a span, or the client's ends, need and no more.

Files lie in `cache/<owner>--<name>/<commit>/`, which is then an ordinary model folder with some shards missing. What is cut off
goes on where it stopped. The token goes to the hub itself and nowhere else. Knows files, not tensors.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # it passes on its HTTP client's base error
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import HfFileMetadata, http_get

from blockserver.model.cache_folder import UNFINISHED, CacheFolder, Hold
from blockserver.model.checkpoint import INDEX, SINGLE
from blockserver.model.facts import require_servable
from blockserver.model.families import block_tensor, family_of
from blockserver.model.progress import Meter, Progress, silent
from swarm.errors import LocalError, RemoteError
from swarm.wire.spans import Span, runs

log = logging.getLogger(__name__)

CONFIG = "config.json"
OF_THE_MODEL = ("generation_config.json", INDEX)
OF_THE_TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
TIMEOUT_S = 20.0
"""For an answer to a question about a file."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubDown(RemoteError):
    """The hub did not answer, or not as a hub does; trying again may help."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model on a hub. `endpoint` is HF_ENDPOINT or the public hub where it is None."""

    repository: str
    cache: Path
    revision: str = "main"
    token: str | None = None
    limit_bytes: int | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model folder that holds what was asked for, for as long as `hold` is not released."""

    folder: Path
    hold: Hold
    downloaded_bytes: int


def fetch_facts(source: Source) -> Path:
    """The model's folder with its configs and index only, enough for `read_facts`. Refuses what cannot be served."""
    return _Repository(source).open()


def fetch_span(source: Source, span: Span, progress: Progress = silent) -> Fetched:
    """With the shards that hold these blocks."""
    return _fetch(source, lambda block: block is not None and block in span, (), progress)


def fetch_ends(source: Source, progress: Progress = silent) -> Fetched:
    """With the shards that hold what is no block's, and the tokenizer: all that a client needs."""
    return _fetch(source, lambda block: block is None, OF_THE_TOKENIZER, progress)


def bytes_to_fetch(source: Source, span: Span) -> int:
    """What `fetch_span` would download now."""
    repository = _Repository(source)
    folder = repository.open()
    return repository.missing_bytes(_shards(folder, lambda block: block is not None and block in span))


def blocks_on_disk(source: Source, num_blocks: int) -> tuple[Span, ...]:
    """Blocks all of whose shards are there, at the commit that was resolved last. Asks no hub."""
    folder = _Repository(source).last_seen()
    if folder is None or not (folder / CONFIG).is_file():
        return ()
    if not (folder / INDEX).is_file():
        return (Span(0, num_blocks),) if (folder / SINGLE).is_file() else ()
    files: dict[int, set[str]] = {}
    for block, file in _shards_of_blocks(folder):
        if block is not None:
            files.setdefault(block, set()).add(file)
    there = {file for file in set().union(*files.values()) if (folder / file).is_file()}
    return runs(block for block, needed in files.items() if block < num_blocks and needed <= there)


def _fetch(source: Source, wanted: Callable[[int | None], bool], beside: tuple[str, ...], progress: Progress) -> Fetched:
    repository = _Repository(source)
    folder = repository.open()
    for name in beside:
        repository.small(name)
    hold = Hold()
    try:
        amount = repository.shards(_shards(folder, wanted), hold, Meter(progress))
    except BaseException:
        hold.release()
        raise
    return Fetched(folder, hold, amount)


def _shards(folder: Path, wanted: Callable[[int | None], bool]) -> list[str]:
    if not (folder / INDEX).is_file():
        return [SINGLE]
    chosen = {file for block, file in _shards_of_blocks(folder) if wanted(block)}
    for file in chosen:
        if Path(file).name != file:
            raise LocalError(f"the index of {folder} names a file outside its folder: {file[:100]}")
    return sorted(chosen)


def _shards_of_blocks(folder: Path) -> Iterator[tuple[int | None, str]]:
    """For each tensor of the index its block, None for what is no block's, and the file that holds it."""
    family = family_of(_read_json(folder / CONFIG)["model_type"])
    for name, file in _read_json(folder / INDEX)["weight_map"].items():
        within = block_tensor(name, family)
        yield int(within["index"]) if within else None, file


class _Repository:
    """One repository at one commit."""

    def __init__(self, source: Source) -> None:
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source.repository) or ".." in source.repository:
            raise LocalError(f"{source.repository!r} is no repository's name; it looks like owner/name")
        self.source = source
        self.endpoint = source.endpoint or os.environ.get("HF_ENDPOINT") or None
        self.cache = CacheFolder(source.cache, source.limit_bytes)
        self.home = source.cache / source.repository.replace("/", "--")
        self.commit = source.revision
        self.online = True

    @property
    def folder(self) -> Path:
        return self.home / self.commit

    def open(self) -> Path:
        self.commit = self._resolve()
        self.small(CONFIG, required=True)
        require_servable(_read_json(self.folder / CONFIG))
        for name in OF_THE_MODEL:
            self.small(name)
        return self.folder

    def small(self, name: str, required: bool = False) -> None:
        """A file that is there or not: fetched once, as a commit never changes."""
        if (self.folder / name).is_file():
            return
        found = self._ask(name) if self.online else None
        if found is not None:
            self._download(name, found, Meter(silent))
        elif required:
            raise LocalError(f"{self.source.repository} holds no {name}, so it is no model that can be served")

    def shards(self, names: list[str], hold: Hold, meter: Meter) -> int:
        """Takes each into `hold`, downloading what is not there. How many bytes came."""
        missing = {name: self._required(name) for name in names if not hold.take(self.folder / name)}
        sizes = {name: self._left(name, found) for name, found in missing.items()}
        if self.source.limit_bytes is not None and sum(found.size or 0 for found in missing.values()) > self.source.limit_bytes:
            raise LocalError(
                f"these blocks take {sum(found.size or 0 for found in missing.values()) / 1e9:.1f} GB of shards, "
                f"and the cache folder may hold {self.source.limit_bytes / 1e9:.1f} GB; raise the limit or serve fewer blocks"
            )
        meter.expect(sum(sizes.values()))
        for name, found in missing.items():
            with self.cache.filling():
                # Another process may have brought it while this one waited.
                if not hold.take(self.folder / name):
                    self.cache.make_room(self._left(name, found), [self._unfinished(name)])
                    self._download(name, found, meter)
                    hold.take(self.folder / name)
        return sum(sizes.values())

    def missing_bytes(self, names: list[str]) -> int:
        return sum(self._left(name, self._required(name)) for name in names if not (self.folder / name).is_file())

    def last_seen(self) -> Path | None:
        """The folder of the commit that the revision stood for when the hub was asked last; None where it never was."""
        if not self._note.is_file():
            return None
        self.commit = self._note.read_text(encoding="utf-8")
        return self.folder

    @property
    def _note(self) -> Path:
        return self.home / "refs" / quote(self.source.revision, safe="")

    def _resolve(self) -> str:
        """The commit that the revision stands for; with the hub out of reach, the one that it stood for last."""
        note = self._note
        try:
            commit = self._required(CONFIG).commit_hash or self.source.revision
        except HubDown:
            if not note.is_file():
                raise
            self.online = False
            log.warning("the hub cannot be reached; going on with %s as it was last seen", self.source.repository)
            return note.read_text(encoding="utf-8")
        if not re.fullmatch(r"[\w.-]{1,100}", commit):
            raise HubDown(f"the hub names a commit that cannot be one: {commit[:100]!r}")
        with self._writing():
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(commit, encoding="utf-8")
        return commit

    def _required(self, name: str) -> HfFileMetadata:
        if not self.online:
            raise HubDown(f"the hub cannot be reached, and {name} of {self.source.repository} was not downloaded before")
        found = self._ask(name)
        if found is None:
            raise LocalError(f"{self.source.repository} at {self.source.revision} holds no {name}")
        return found

    def _ask(self, name: str) -> HfFileMetadata | None:
        url = hf_hub_url(self.source.repository, name, revision=self.commit, endpoint=self.endpoint)
        with self._explained():
            try:
                return get_hf_file_metadata(url, token=self.source.token or False, timeout=TIMEOUT_S, endpoint=self.endpoint)
            except EntryNotFoundError:
                return None

    def _left(self, name: str, found: HfFileMetadata) -> int:
        unfinished = self._unfinished(name)
        return max(0, (found.size or 0) - (unfinished.stat().st_size if unfinished.is_file() else 0))

    def _unfinished(self, name: str) -> Path:
        return self.folder / f"{name}{UNFINISHED}"

    def _download(self, name: str, found: HfFileMetadata, meter: Meter) -> None:
        unfinished = self._unfinished(name)
        url = hf_hub_url(self.source.repository, name, revision=self.commit, endpoint=self.endpoint)
        at_the_hub = urlsplit(found.location).netloc == urlsplit(url).netloc
        headers = {"authorization": f"Bearer {self.source.token}"} if self.source.token and at_the_hub else {}
        with self._writing(), self._explained():
            self.folder.mkdir(parents=True, exist_ok=True)
            with unfinished.open("ab") as file:
                bar: Any = _counting(meter)
                http_get(
                    found.location, file, resume_size=file.tell(), headers=headers, expected_size=found.size, tqdm_class=bar
                )
        self._require_whole(unfinished, name, found)
        unfinished.replace(self.folder / name)

    def _require_whole(self, file: Path, name: str, found: HfFileMetadata) -> None:
        """Large files are named by their SHA-256."""
        if found.etag and _SHA256.fullmatch(found.etag):
            with file.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            if digest != found.etag:
                file.unlink()
                raise HubDown(f"{name} of {self.source.repository} came broken; it was thrown away, try again")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The hub library's errors in this project's words, by blame."""
        repository, token = self.source.repository, "pass" if not self.source.token else "check"
        try:
            yield
        except GatedRepoError as error:
            raise LocalError(
                f"{repository} is gated: accept its terms on the hub, and {token} a token of that account"
            ) from error
        except RevisionNotFoundError as error:
            raise LocalError(f"{repository} has no revision {self.source.revision!r}") from error
        except RepositoryNotFoundError as error:
            raise LocalError(f"the hub has no repository {repository}, or it is private: {token} a token") from error
        except HFValidationError as error:
            raise LocalError(f"{repository!r} is no repository's name: {error}") from error
        except OfflineModeIsEnabled as error:
            raise HubDown(f"the hub is switched off by HF_HUB_OFFLINE, and {repository} is not complete here") from error
        except HfHubHTTPError as error:
            raise HubDown(f"the hub answered for {repository}: {str(error).splitlines()[0][:200]}") from error
        except (HTTPError, ConnectionError) as error:
            raise HubDown(f"the hub cannot be reached for {repository} ({type(error).__name__}: {str(error)[:200]})") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno is None:  # the library's own: what came has another size than the hub said
                raise HubDown(f"{self.source.repository} came incomplete: {str(error)[:200]}") from error
            raise LocalError(f"the cache folder {self.source.cache} cannot be written to: {error.strerror}") from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise LocalError(f"{file} cannot be read: it is no JSON object")
    return content


def _counting(meter: Meter) -> type[Any]:
    """What the library takes for a progress bar."""

    class Counting:
        def __init__(self, **_options: Any) -> None:
            pass

        def __enter__(self) -> Counting:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, amount: int) -> None:
            meter.add(amount)

    return Counting
