"""From logits to the next token: greedy, or drawn with temperature, top-k and top-p from a seeded source.

Pure but for the generator it is given. Knows nothing of models or peers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from swarm.errors import LocalError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens, and when to stop."""

    max_new_tokens: int = 256
    """At most so many; fewer where the model ends by itself."""
    temperature: float = 0.0
    """0 takes the likeliest token always."""
    top_k: int = 0
    """Draws from the k likeliest only; 0 from all."""
    top_p: float = 1.0
    """Draws from the fewest likeliest tokens that together have this probability."""
    seed: int | None = None
    """The same seed, prompt and weights give the same text; None draws anew each time."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise LocalError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if not 0.0 <= self.temperature <= 100.0:
            raise LocalError(f"temperature must be within 0 to 100, not {self.temperature}")
        if self.top_k < 0:
            raise LocalError(f"top_k must be 0 (all tokens) or more, not {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise LocalError(f"top_p must be above 0 and at most 1, not {self.top_p}")

    def generator(self) -> torch.Generator:
        source = torch.Generator()
        if self.seed is None:
            source.seed()
        else:
            source.manual_seed(self.seed)
        return source


GREEDY = Sampling()


def choose(logits: torch.Tensor, how: Sampling, source: torch.Generator) -> int:
    """The next token of one row of logits, `[vocabulary]`."""
    if how.temperature == 0.0:
        return int(logits.argmax())
    return int(torch.multinomial(probabilities(logits, how), 1, generator=source))


def probabilities(logits: torch.Tensor, how: Sampling) -> torch.Tensor:
    """What is drawn from, `[vocabulary]`: temperature first, then the k likeliest, then the nucleus of mass `top_p`."""
    scaled = logits.float() / how.temperature
    if 0 < how.top_k < scaled.numel():
        least = scaled.topk(how.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    chances = scaled.softmax(dim=-1)
    if how.top_p < 1.0:
        sorted_chances, order = chances.sort(descending=True)
        # The token that crosses the mass stays; those after it go.
        beyond = sorted_chances.cumsum(dim=-1) - sorted_chances >= how.top_p
        chances = chances.masked_fill(torch.zeros_like(beyond).scatter(0, order, beyond), 0.0)
        chances = chances / chances.sum()
    return chances
