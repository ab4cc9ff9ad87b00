"""How the model speaks where a request does not say: as the operator wants, else as its authors recommend, else as OpenAI.

Authors write what suits a model into generation_config.json; small ones talk at random at OpenAI's temperature of 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blockserver.client.sampling import Sampling
from blockserver.gateway.asked import Asked
from swarm.errors import LocalError

FILE = "generation_config.json"


@dataclass(frozen=True, slots=True)
class Manner:
    """None: not said."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None

    def otherwise(self, then: Manner) -> Manner:
        """What is not said here, `then` says."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        return Manner(**{name: getattr(then, name) if value is None else value for name, value in mine.items()})

    def sampling(self, asked: Asked) -> Sampling:
        """For one request; what it says itself comes first."""
        now = Manner(asked.temperature, asked.top_p, asked.top_k).otherwise(self).otherwise(AS_OPENAI)
        assert now.temperature is not None and now.top_p is not None and now.top_k is not None
        return Sampling(asked.max_tokens, now.temperature, now.top_k, now.top_p, asked.seed)


AS_OPENAI = Manner(1.0, 1.0, 0)
NOT_SAID = Manner()


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)


def recommended(folder: Path) -> Manner:
    """By the model's authors. Raises LocalError where their file cannot be read."""
    try:
        said = _File.model_validate(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Manner()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise LocalError(f"{folder / FILE}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise LocalError(f"{folder / FILE} cannot be read: {error}") from error
    return Manner(said.temperature, said.top_p, said.top_k)
