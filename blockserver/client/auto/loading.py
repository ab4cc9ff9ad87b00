"""From a name and some addresses to a model: files, ends, a connection, a router.

Knows where each part comes from; what they do together is `causal_lm`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import cast

import torch
from transformers import GenerationConfig

from blockserver.client.auto.causal_lm import DistributedCausalLM, named_after_its_family
from blockserver.client.auto.connection import Connection
from blockserver.client.discovery import RouteFinder
from blockserver.client.model import RemoteModel
from blockserver.client.session import Patience
from blockserver.client.stream import Limits
from blockserver.client.training.prompts import LearnedPrompts
from blockserver.model.cache_folder import Hold
from blockserver.model.facts import read_config, read_facts
from blockserver.model.hub import Source, fetch_ends
from blockserver.places import cache_folder
from swarm.errors import LocalError


class AutoDistributedModelForCausalLM:
    """Not to be made: `from_pretrained` gives a `DistributedCausalLM`."""

    def __init__(self) -> None:
        raise LocalError("use AutoDistributedModelForCausalLM.from_pretrained(model, initial_peers=[...])")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        initial_peers: Sequence[str],
        dtype: torch.dtype | str | None = None,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
        dht_prefix: str | None = None,
        allowed_servers: Collection[str] | None = None,
        blocked_servers: Collection[str] = (),
        monitor: str | None = None,
        tuning_mode: str | None = None,
        pre_seq_len: int = 16,
        limits: Limits | None = None,
        patience: Patience | None = None,
    ) -> DistributedCausalLM:
        """Loads embeddings, final norm and head, and joins the swarm as a client.

        A folder, or a repository (`owner/name`) whose files are fetched into `cache_dir` unless they are there. `dtype` is the
        checkpoint's own by default; a torch dtype or its name. `allowed_servers` and `blocked_servers` are peer ids.
        `monitor` is the address of a Sepal site, whose page is named where blocks have no server.
        `tuning_mode` "ptune" or "deep_ptune" adds `pre_seq_len` learned prompts. LocalError where something is missing here,
        Unreachable where no bootstrap peer answers; whether blocks have servers shows with the first call.
        """
        folder, hold = _files(pretrained_model_name_or_path, revision, token, cache_dir)
        facts = read_facts(folder)
        chosen = _dtype(dtype, facts.dtype)
        prefix = dht_prefix or facts.prefix
        connection = Connection.open(initial_peers)
        try:
            finder = RouteFinder(
                connection.node,
                prefix,
                facts.num_blocks,
                allowed=allowed_servers,
                blocked=blocked_servers,
                monitor=monitor,
            )
            remote = RemoteModel.load(
                folder, connection.node.p2p, finder, prefix=prefix, dtype=chosen, limits=limits, patience=patience
            )
            model = distributed(folder, connection, remote)
            if tuning_mode is not None:
                table = cast(torch.Tensor, model.get_input_embeddings().weight)
                model.learned = LearnedPrompts(tuning_mode, pre_seq_len, table, facts.num_blocks)
        except BaseException:
            connection.close()
            raise
        model.files = hold
        return model


def distributed(folder: Path, connection: Connection, remote: RemoteModel) -> DistributedCausalLM:
    """The transformers model over a connection and a client's model that are there already."""
    config = read_config(folder)
    config.name_or_path = str(folder)
    model = named_after_its_family(config)(config, connection, remote)
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model


def _files(
    model: str | PathLike[str], revision: str | None, token: str | None, cache_dir: str | PathLike[str] | None
) -> tuple[Path, Hold | None]:
    """The folder, and what keeps its files there."""
    folder = Path(model)
    if folder.is_dir():
        return folder, None
    name = str(model)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise LocalError(f"there is no model folder {folder}")
    cache = Path(cache_dir) if cache_dir is not None else cache_folder()
    fetched = fetch_ends(Source(repository=name, cache=cache, revision=revision or "main", token=token))
    return fetched.folder, fetched.hold


def _dtype(given: torch.dtype | str | None, own: torch.dtype) -> torch.dtype:
    if given is None or given == "auto":
        return own
    found = getattr(torch, given.removeprefix("torch."), None) if isinstance(given, str) else given
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise LocalError(f"dtype {given!r} is none that hidden states can have; float32, bfloat16 and float16 are")
    return found
