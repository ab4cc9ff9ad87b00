"""What a block server and the coordinator say to each other over HTTP (docs/protocol.md, "Hints").

The server always decides. `POST /api/v1/hint` is a question and a heartbeat; the answer is to stay or a lease, always with
a reason; a lease is accepted before the server unloads anything. Requests are signed (`swarm.wire.identity`): without a
signature there is advice to look at, and no lease.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from swarm.errors import BadRecord
from swarm.wire.keys import MAX_BLOCKS, parse_peer_id, parse_prefix
from swarm.wire.spans import Span
from swarm.wire.text import clean_text


def _checked_peer_id(value: str) -> str:
    try:
        return parse_peer_id(value)
    except BadRecord as error:
        raise ValueError(error.detail) from error


def _checked_prefix(value: str) -> str:
    try:
        return parse_prefix(value)
    except BadRecord as error:
        raise ValueError(error.detail) from error


# The patterns are for readers of the OpenAPI document, and a little wider than what is taken: who is refused, is told in words.
_PEER_ID = {"pattern": "^(Qm|12D3KooW)[1-9A-HJ-NP-Za-km-z]{44}$"}
_PREFIX = {"pattern": r"^[A-Za-z0-9_\-]+$"}
PeerIdText = Annotated[str, Field(max_length=64, json_schema_extra=_PEER_ID), AfterValidator(_checked_peer_id)]
PrefixText = Annotated[str, Field(max_length=128, json_schema_extra=_PREFIX), AfterValidator(_checked_prefix)]
BlockCount = Annotated[int, Field(ge=1, le=MAX_BLOCKS)]
Wait = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Seconds until it makes sense to ask again: whoever is told sleeps for so long."""
MOST_WORDS = 1_000
"""Characters of a reason: each is a sentence or two, and ends up in logs."""


def _shown(value: str) -> str:
    return clean_text(value, MOST_WORDS) or ""


Words = Annotated[str, AfterValidator(_shown)]
"""For people, on one line."""
LeaseId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""Stands in the path of the requests about the lease."""
Seconds = Annotated[float, Field(allow_inf_nan=False)]
PlanVersion = Annotated[int, Field(ge=0, lt=2**63)]
MOST_ALSO = 8
"""Further models that one server may offer: each is planned for under a lock of its own, and more than a few fit on no disk."""


USUAL_RETRY_S = 30.0
"""What `retry_after_s` is where nothing speaks for sooner or later. A server whose operator wants it to may ask more often."""
MOST_ON_DISK = 16
"""Spans. A cache holds a few; a question stays short."""


class ReasonCode(StrEnum):
    """Why the coordinator advises what it advises; the same codes stand in leases, logs and metrics."""

    HOLE = "hole"
    THINNEST = "thinnest"
    NOTHING_NEEDED = "nothing-needed"
    NO_SAFE_MOVE = "no-safe-move"
    OTHER_SERVER_MOVES = "other-server-moves"
    ASKED_NOT_TO = "asked-not-to"
    LEASE_OPEN = "lease-open"
    UNKNOWN_MODEL = "unknown-model"
    BLIND = "blind"
    NO_FREE_SPAN = "no-free-span"
    WEAKEST = "weakest"
    CHAIN = "chain"
    REDUNDANCY = "redundancy"
    BALANCE = "balance"
    SCARCE = "scarce"
    TOO_SOON = "too-soon"
    BEING_REPAIRED = "being-repaired"
    QUARANTINED = "quarantined"


class Urgency(StrEnum):
    HOLE = "hole"
    ARRIVAL = "arrival"
    REDUNDANCY = "redundancy"
    BALANCE = "balance"


class Posted(BaseModel):
    """What is posted holds numbers and words only; Python takes true for 1, and JSON does not."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _no_booleans(cls, given: Any) -> Any:
        fields = given.items() if isinstance(given, dict) else ()
        # What nobody knows is passed over, so that newer peers may say more.
        told = [name for name, value in fields if isinstance(value, bool) and name in cls.model_fields]
        if told:
            raise ValueError(f"{told[0]} is neither true nor false, but a number or a word")
        return given


class SpanDocument(Posted):
    start: Annotated[int, Field(ge=0, lt=MAX_BLOCKS)]
    end: Annotated[int, Field(ge=1, le=MAX_BLOCKS)]

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"a span needs start < end, not {self.start}:{self.end}")
        return self

    @classmethod
    def of(cls, span: Span) -> Self:
        return cls(start=span.start, end=span.end)

    def to_span(self) -> Span:
        return Span(self.start, self.end)


class OtherModel(Posted):
    """A model that the server could serve in the place of the one it asks about, and how many blocks of it fit."""

    model: PrefixText
    num_blocks_max: BlockCount
    on_disk: Annotated[tuple[SpanDocument, ...], Field(max_length=MOST_ON_DISK)] = ()
    """Blocks of it that need no download, the longest spans of them where there are more."""


class HintRequest(Posted):
    """`num_blocks_max` is what fits the server, net of its attention cache; `current` is None before it serves anything.

    `model` is the one that `current` is of, or that an arriving server would serve first; `also` are others, each named once.
    """

    peer: PeerIdText
    model: PrefixText
    num_blocks_max: BlockCount
    num_blocks: BlockCount
    current: SpanDocument | None = None
    sessions_active: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    est_load_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] | None = None
    """How long the server takes to load such a span, where it knows."""
    forward_rps: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    """Tokens x blocks per second that it computes, where it knows: a shorter span than fits may then be worth more."""
    network_rps: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    """Tokens per second that its line carries, where it knows."""
    also: Annotated[tuple[OtherModel, ...], Field(max_length=MOST_ALSO)] = ()
    """Models that the operator offers besides. A lease may be for one of them, and for no other."""
    on_disk: Annotated[tuple[SpanDocument, ...], Field(max_length=MOST_ON_DISK)] = ()
    """Blocks of `model` that an arriving server need not download, the longest spans of them where there are more."""

    @model_validator(mode="after")
    def _each_model_once(self) -> Self:
        if len(self.offered) < 1 + len(self.also):
            raise ValueError("also: each model is named once, and not the one that is asked about")
        return self

    @property
    def offered(self) -> dict[str, int]:
        """How many blocks fit, by model; the one that is asked about first."""
        return {self.model: self.num_blocks_max} | {other.model: other.num_blocks_max for other in self.also}

    @property
    def disk(self) -> dict[str, tuple[SpanDocument, ...]]:
        """What need not be downloaded, by model."""
        return {self.model: self.on_disk} | {other.model: other.on_disk for other in self.also}


class LeaseDocument(BaseModel):
    """An offer to serve `start:end` of `model`, which may be any that the server offered. It lapses after `expires_in_s`
    seconds unless it is accepted."""

    model_config = ConfigDict(frozen=True)

    id: LeaseId
    model: PrefixText
    start: Annotated[int, Field(ge=0, lt=MAX_BLOCKS)]
    end: Annotated[int, Field(ge=1, le=MAX_BLOCKS)]
    urgency: Urgency
    reason_code: ReasonCode
    reason: Words
    expires_in_s: Seconds
    plan_version: PlanVersion | None = None
    """To be sent back with the accept: the plan that this offer belongs to."""
    if_unchanged: SpanDocument | None = None
    """The offer holds only while the server still serves this, of `from_model`; None for an arrival."""
    from_model: PrefixText | None = None
    """The model whose blocks the server leaves; None for an arrival. Another one than `model` where the server is to change."""
    expected_gain: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Share of the swarm's possible throughput that the move is expected to win, where the planner says."""
    cost_s: Seconds | None = None
    """Seconds for which the server will serve nothing, where it said how long it loads."""
    deadline_s: Seconds | None = None
    """Once accepted: seconds after which the lease ends where no progress, or too little, is reported."""

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"a span needs start < end, not {self.start}:{self.end}")
        return self

    def to_span(self) -> Span:
        return Span(self.start, self.end)


class HintAnswer(BaseModel):
    """`lease` is there when the advice is to move, unless `no_lease_because` says why this asker gets none; `span` is where
    the advice leads, in the model `model`, with a lease or without. `retry_after_s` says when asking again makes sense."""

    model_config = ConfigDict(frozen=True)

    advice: Literal["move", "stay"]
    reason_code: ReasonCode
    reason: Words
    retry_after_s: Wait
    lease: LeaseDocument | None = None
    span: SpanDocument | None = None
    model: PrefixText | None = None
    no_lease_because: Words | None = None
    lease_after_s: Wait | None = None
    """With `no_lease_because`: in how many seconds there may be one. None where waiting changes nothing."""


class LeaseReply(BaseModel):
    """`stale` to an accept: the swarm has changed, stay. `stale` to a progress report: the lease is gone."""

    model_config = ConfigDict(frozen=True)

    outcome: Literal["ok", "stale"]
    reason: Words


class LeaseStep(Posted):
    """What a server reports about its lease; `progress` is the share of bytes loaded, 0 to 1, and more each time."""

    peer: PeerIdText
    progress: Annotated[float, Field(ge=0, le=1)] = 0.0
    reason: Annotated[str, Field(max_length=200)] = ""
    plan_version: int | None = None
    current: SpanDocument | None = None
    """With an accept: what the server serves now, of the lease's `from_model`."""
    not_again_s: Annotated[float, Field(ge=0, le=604_800, allow_inf_nan=False)] = 0.0
    """With a decline: for how long the server does not want to be asked again."""


class DeclineReason(StrEnum):
    """The words with which a reason to decline begins, and what follows after a colon is for people. Others are kept too."""

    PINNED = "pinned"
    BUSY_SESSIONS = "busy-sessions"
    DISK = "disk"
    MEMORY = "memory"
    TOO_SOON = "too-soon"
    FAILED = "failed"
    NO_SUCH_BLOCKS = "no-such-blocks"


def decline_reason(words: str) -> DeclineReason | None:
    """The word that `words` begin with; None for one of the server's own. Servers of before wrote `busy_sessions`."""
    word = words.split(":", 1)[0].strip().replace("_", "-")
    return next((reason for reason in DeclineReason if reason == word), None)


class NonceDocument(BaseModel):
    """A word to be signed once, within `expires_in_s` seconds."""

    model_config = ConfigDict(frozen=True)

    nonce: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$", examples=["Vb0rLZ5rT1mYw8kQ2nXc4A"])]
    expires_in_s: float
