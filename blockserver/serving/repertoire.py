"""What this machine could serve: the models that its operator offers, each with what decides how it would be served here.
Worked out at the start, before anything is announced; a model that cannot be served stops the server there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

from blockserver.config import AlsoModel, ServeConfig
from blockserver.model.facts import ModelFacts
from blockserver.serving.loading import blocks_on_disk, blocks_to_serve, bytes_to_fetch, dtype_of, read_model, require
from swarm.errors import LocalError
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Offer:
    """One model of the repertoire. `num_blocks` fit here; `fixed` is the operator's choice of them, if there is one; `config`
    is that of a server of this model alone."""

    config: ServeConfig
    facts: ModelFacts
    prefix: str
    dtype: torch.dtype
    num_blocks: int
    fixed: Span | None = None

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def bytes_per_token(self) -> int:
        """Hidden states of one token, on the wire."""
        return self.facts.hidden_size * self.dtype.itemsize

    @property
    def record(self) -> ModelRecord:
        """What the index of models is told."""
        return ModelRecord(self.facts.num_blocks, None)

    def bytes_to_fetch(self, span: Span) -> int:
        """What loading `span` would write to the disk."""
        return bytes_to_fetch(self.config, span)

    def blocks_on_disk(self) -> tuple[Span, ...]:
        """Those that need no download: of a folder all."""
        return (self.facts.whole,) if self.config.in_folder else blocks_on_disk(self.config, self.facts.num_blocks)


Repertoire = tuple[Offer, ...]
"""The operator's first choice first; no two of one prefix."""


def repertoire_of(config: ServeConfig) -> Repertoire:
    """LocalError where one of the models cannot be served here, or two have the same prefix."""
    offers = [_offer(config)]
    for also in config.also:
        try:
            offers.append(_offer(_alone(config, also)))
        except LocalError as error:
            raise LocalError(f"--also {also}: {error}") from error
    prefixes = [offer.prefix for offer in offers]
    for prefix in prefixes:
        if prefixes.count(prefix) > 1:
            raise LocalError(f"two of the models are called {prefix}: give one another name, --also MODEL=PREFIX")
    return tuple(offers)


def _alone(config: ServeConfig, also: AlsoModel) -> ServeConfig:
    """Adapters and a revision belong to the one model that they were given for."""
    return replace(config, model=also.model, prefix=also.prefix, also=(), adapters=(), revision=None)


def _offer(config: ServeConfig) -> Offer:
    facts = read_model(config)
    dtype = dtype_of(config, facts)
    num_blocks = blocks_to_serve(config, config.num_blocks, facts, dtype, config.cache_tokens)
    fixed = _checked_fixed_span(config.block_indices, facts)
    require(config, fixed or facts.whole)
    offer = Offer(config, facts, config.prefix or facts.prefix, dtype, len(fixed) if fixed else num_blocks, fixed)
    log.info(
        "%s: %d blocks of %.1f MB; this server takes %d of them, in %s, with a cache of %d tokens",
        offer.prefix, facts.num_blocks, facts.bytes_per_block(dtype) / 1e6,
        offer.num_blocks, offer.dtype_name, config.cache_tokens,
    )  # fmt: skip
    return offer


def _checked_fixed_span(span: Span | None, facts: ModelFacts) -> Span | None:
    if span is not None and not facts.whole.covers(span):
        raise LocalError(f"--block-indices {span}: {facts.folder.name} has blocks 0 to {facts.num_blocks - 1}")
    return span
