"""Words that all typed answers share. A schema here is the promise of /api/v1: null means "not known", never zero.

What a door returns is checked against its schema before it leaves, and a field that no schema names is an error.
"""

from __future__ import annotations

from typing import Annotated, Any

from ninja import Query
from pydantic import BaseModel, ConfigDict, Field

from monitor.published import Watch, rfc3339


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


def described(text: str, example: Any, **more: Any) -> Any:
    return Field(description=text, examples=[example], **more)


Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-09-21T14:13:20Z"])]
"""RFC 3339 in UTC, to the second, with a Z."""
PeerId = Annotated[str, Field(examples=["12D3KooWKnDdG3iXw9eTFijk3EWSunZcFi54Zka4wmtqtt6rPxc8"])]
Prefix = Annotated[
    str, Field(description="The model's DHT prefix, by which it is named everywhere here", examples=["Llama-2-70b-hf"])
]
Pair = Annotated[list[int], Field(min_length=2, max_length=2, examples=[[80, 88]])]
"""`[start, end]`: blocks start to end - 1."""
Rate = Annotated[float, Field(description="Tokens per second", examples=[310.5], ge=0)]

SwarmName = Annotated[
    str, Query(max_length=64, description="Which swarm, by its name in /api/v1/swarms; the first one where this is left out")
]
OfModel = Annotated[str, Query(max_length=128, description="Only of this model, by its DHT prefix")]


class Fresh(Document):
    """How far an answer may be believed: in every object that tells of the present."""

    observed_at: Moment | None = Field(description="When the snapshot was taken that this rests on; null before the first")
    snapshot_id: int | None = Field(description="That snapshot, for `/api/v1/snapshots/ID`", examples=[4711])
    stale: bool = Field(
        description="True where the swarm has not been seen for three intervals, or what was seen since is not believed: then"
        " nothing here says how things are now",
        examples=[False],
    )
    expected_interval_s: float = Field(description="Seconds between two checks", examples=[30.0])


def freshness(seen: Watch) -> dict[str, Any]:
    published = seen.published
    return {
        "observed_at": rfc3339(published.snapshot.at) if published else None,
        "snapshot_id": published.snapshot_id if published else None,
        "stale": not seen.sees,
        "expected_interval_s": seen.interval_s,
    }
