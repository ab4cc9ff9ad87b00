"""What a client tells the coordinator of the servers that it used, and a canary of a whole generation (docs/protocol.md).

Signed like hints. Rates are in tokens per second as servers announce them (`swarm.throughput.rate_of_pass`), from the longest
pass of at least `LEAST_TOKENS` tokens: a single token's pass says how far away a server is, not how fast.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from swarm.wire.hints import PeerIdText, PrefixText

LEAST_TOKENS = 32
MOST_SERVERS = 64
"""A route has one server for each block at most; nobody's has sixty."""

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Rate = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


class ServerReport(BaseModel):
    """One server since the last report: requests, how many of them failed, and its rate where a pass was long enough."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    peer_id: PeerIdText
    requests: Annotated[int, Field(ge=1, le=1_000_000)]
    failures: Count = 0
    tokens_per_s: Rate | None = None
    last_error: Annotated[str, Field(max_length=200)] = ""

    @model_validator(mode="after")
    def _failures_are_requests(self) -> Self:
        if self.failures > self.requests:
            raise ValueError(f"{self.failures} of {self.requests} requests cannot have failed")
        return self


class CanaryReport(BaseModel):
    """A generation through the swarm. `trusted_by` says what the expected answer is: configured, or that of most runs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    outcome: Literal["expected", "unexpected", "failed"]
    trusted_by: Literal["configured", "majority"]
    servers: Annotated[list[PeerIdText], Field(max_length=MOST_SERVERS)] = []
    seconds: Seconds | None = None
    detail: Annotated[str, Field(max_length=300)] = ""


class ReportRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    peer: PeerIdText
    model: PrefixText
    servers: Annotated[list[ServerReport], Field(max_length=MOST_SERVERS)] = []
    canary: CanaryReport | None = None


class ReportReply(BaseModel):
    """`counted`: servers of the report that the monitor knows. `canary_counted`: only those of the site's own canaries are.
    `look_at`: where an error in the report names missing blocks, the page that shows them."""

    model_config = ConfigDict(frozen=True)

    counted: int
    canary_counted: bool = False
    look_at: str | None = None
