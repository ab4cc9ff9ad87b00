"""What visitors put into the forms of the people's pages: the same limits as the JSON reads, errors in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from coordinator.cards import CARDS
from coordinator.reads import Billions, Gigabytes, Precision, Rate
from swarm.wire.hints import BlockCount, PeerIdText, PrefixText


def _known_card(key: str) -> str:
    if key not in CARDS:
        raise ValueError("not in the list; say its memory instead")
    return key


class ConnectForm(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    model: PrefixText | None = None
    memory_gb: Gigabytes | None = None
    precision: Precision = "bfloat16"
    parameters_b: Billions | None = None
    num_blocks: BlockCount | None = None
    card: Annotated[str, AfterValidator(_known_card)] | None = None
    system: Literal["linux", "windows", "macos"] = "linux"
    code: Annotated[str, Field(max_length=40)] | None = None
    peer: PeerIdText | None = None
    way: Literal["pip", "container", "systemd"] = "pip"

    def kept(self, *, but: str) -> list[tuple[str, str]]:
        """What the form of a later step has to bring along."""
        said = self.model_dump(exclude_defaults=True, exclude={but})
        return [(name, str(value)) for name, value in said.items()]


class WatchForm(BaseModel):
    """`since`: when somebody began to watch, in Unix seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: PrefixText | None = None
    peer: PeerIdText | None = None
    since: Annotated[float, Field(ge=0, le=4e9, allow_inf_nan=False)] | None = None


class WhatIfForm(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    model: PrefixText | None = None
    add_blocks: BlockCount | None = None
    throughput: Rate | None = None
    leaves: PeerIdText | None = None


class HintsForm(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    model: PrefixText | None = None


Form = TypeVar("Form", bound=BaseModel)

_LABELS = {
    "memory_gb": "Memory",
    "num_blocks": "Blocks",
    "parameters_b": "Parameters",
    "peer": "Peer id",
    "add_blocks": "Blocks",
    "throughput": "Throughput",
    "leaves": "Server that leaves",
    "model": "Model",
    "precision": "Precision",
    "card": "Card",
    "code": "Code",
}


def read(form: type[Form], query: Mapping[str, str]) -> tuple[Form, list[str]]:
    """The form, with fields that cannot be read left out, and a sentence for each of those. Empty fields are absent."""
    given = {name: value.strip() for name, value in query.items() if value.strip() and name in form.model_fields}
    try:
        return form.model_validate(given), []
    except ValidationError as error:
        bad = {str(item["loc"][0]): item["msg"].removeprefix("Value error, ") for item in error.errors()}
    complaints = [f"{_LABELS.get(name, name)}: {message[:1].lower()}{message[1:]}." for name, message in bad.items()]
    return form.model_validate({name: value for name, value in given.items() if name not in bad}), complaints
