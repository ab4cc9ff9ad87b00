"""Servers: all of a swarm in pages, and one with everything that it serves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from monitor.api import paging, sight
from monitor.api.caching import OF_SNAPSHOT
from monitor.api.problems import UNKNOWN_SERVER, Problem
from monitor.api.typed import Document, Fresh, Moment, OfModel, Pair, PeerId, Prefix, SwarmName, freshness
from monitor.documents import server_document
from monitor.published import Watch, as_of_now, beliefs
from monitor.serving import FULL, QUARANTINED
from swarm.answers.judging import Standing
from swarm.snapshot import Outcome, PeerState

router = Router(tags=["servers"])

State = Literal["online", "joining", "leaving", "unreachable", "gone", "not checked", "full", "quarantined"]
OutcomeWord = Literal["answered", "not held", "protocol absent", "refused", "no address", "timeout", "error", "wrong answer"]
StandingWord = Literal["alone", "agrees", "disputed", "differs", "wrong"]
assert set(State.__args__) == {*(state.value for state in PeerState), FULL, QUARANTINED}  # type: ignore[attr-defined]
assert set(OutcomeWord.__args__) == {outcome.value for outcome in Outcome}  # type: ignore[attr-defined]
assert set(StandingWord.__args__) == {standing.value for standing in Standing}  # type: ignore[attr-defined]


class Reachability(Document):
    """The last time that the monitor dialled the server."""

    outcome: OutcomeWord = Field(description="How that ended; only `answered` counts as being online", examples=["answered"])
    detail: str = Field(description="The text of the error, without addresses; empty where there was none", examples=[""])
    asked_at: Moment
    asked_for: Pair | None = Field(description="The blocks whose first and last one it was asked for; null: for none")
    addresses_tried: list[str] = Field(
        description="What was dialled, without hosts; empty where libp2p did not say", examples=[["/ip4/…/tcp/31330"]]
    )
    via: Literal["direct", "relay"] | None = Field(description="Null where libp2p did not say", examples=["direct"])


class Belief(Document):
    basis: str = Field(description="Kind of evidence that decided", examples=["measured"])
    reason: str = Field(examples=["measured 40 s ago"])


class Answers(Document):
    """What its answers to the monitor's small forward passes come to, beside those of others who were asked the same."""

    standing: StandingWord = Field(
        description="`alone`: nobody of another network was asked the same; `agrees` with most of those who were; `disputed`:"
        " they do not agree, and it cannot be told who is right; `differs`: two networks or more agree with each other and not"
        " with it, at two rounds or more; `wrong` by itself: not finite, all zeros, the input, another shape",
        examples=["agrees"],
    )
    blocks: Pair = Field(description="What it was asked for", examples=[[7, 8]])
    against: int = Field(description="Networks that agree with each other and not with it, at most", examples=[0], ge=0)
    words: str | None = Field(description="Null where nothing speaks against its answers", examples=[None])


class Told(Document):
    """Reports of clients, which are strangers' words."""

    witnesses: int = Field(description="Clients that reported", examples=[2], ge=0)
    requests: int = Field(description="Requests that they made", examples=[120], ge=0)
    failures: int = Field(description="Of these, failed", examples=[1], ge=0)


class ServerPart(Document):
    """One server of one model."""

    peer_id: PeerId
    public_name: str | None = Field(
        description="What its owner wants it to be called; null where none is sent", examples=["duck"]
    )
    state: State = Field(
        description="`online` answers and serves its blocks; `full` does too, with no cache left for another session; `joining`"
        " loads; `unreachable` did not answer, or answers nothing of use; `gone` is no longer announced; `not checked` was not"
        " dialled, or nobody sees the swarm now; `quarantined` is set aside by the site's staff",
        examples=["online"],
    )
    state_since: Moment | None = Field(description="Since when, as far as the monitor saw; null while stale")
    state_when_last_seen: State | None = Field(
        description="What it was at `observed_at`, while nobody sees what it is; null where it is not stale", examples=[None]
    )
    last_seen: Moment | None = Field(description="The last answer or renewed announcement")
    start: int = Field(description="First block", examples=[0], ge=0)
    end: int = Field(description="One more than the last block", examples=[40], ge=1)
    throughput_tokens_per_second: float | None = Field(
        description="As the server says; null where it does not", examples=[310.5]
    )
    cache_tokens_left: int | None = Field(
        description="Attention cache left, keys and values of all its blocks together; divide by 2 x blocks for tokens of one"
        " session; null where it does not say",
        examples=[1179648],
    )
    version: str | None = Field(description="Of its software", examples=["2.3.0"])
    using_relay: bool | None = Field(description="Whether others reach it through a relay only, as it says", examples=[False])
    conflict: str | None = Field(
        description="Where its record and its own answer contradict each other: then the answer counts; or what speaks against"
        " its answers",
        examples=[None],
    )
    quarantined: str | None = Field(
        description="Why this site's staff has it count for nothing, and until when", examples=[None]
    )
    clock_skew_s: float | None = Field(
        description="Seconds that its clock seems to run ahead; negative: behind", examples=[None]
    )
    reachability: Reachability | None = Field(description="Null where it has not been dialled yet")
    believed_tokens_per_second: float | None = Field(
        description="What plans reckon with; null where it does not serve now", examples=[205.0]
    )
    belief: Belief | None = Field(description="What that rests on")
    measured_tokens_per_second: float | None = Field(
        description="As the monitor measured it; null where it has not lately", examples=[211.4]
    )
    answers: Answers | None = Field(description="Null where none was looked at lately")
    clients: Told | None = Field(description="What clients reported lately; null where none did")


class ServerOfModel(ServerPart, Fresh):
    """A server as it stands by itself: with its model, and how far that may be believed."""

    swarm: str = Field(examples=["main"])
    prefix: Prefix


class ServerList(Fresh):
    """In order of peer id, then model. One peer may serve several models."""

    items: list[ServerOfModel]
    next: str | None = Field(description="Address of the next page; null on the last", examples=[None])


class PeerDocument(Fresh):
    """Everything that one peer serves in this swarm."""

    swarm: str = Field(examples=["main"])
    peer_id: PeerId
    public_name: str | None = Field(description="Null where none is sent", examples=["duck"])
    serves: list[ServerOfModel] = Field(description="One entry for each model, in order of prefix")


@router.get("/servers", response=ServerList, summary="Servers of a swarm, in pages")
def servers(
    request: HttpRequest,
    response: HttpResponse,
    swarm: SwarmName = "",
    prefix: OfModel = "",
    state: Annotated[State | None, Query(description="Only in this state")] = None,
    limit: paging.PageSize = paging.PAGE,
    cursor: paging.Cursor = "",
) -> dict[str, Any]:
    seen = sight.look(request, swarm, OF_SNAPSHOT)
    after = paging.read_words(cursor, 2)
    listed = [
        one
        for one in sorted(every(seen), key=_key)
        if _key(one) > after and prefix in ("", one["prefix"]) and state in (None, one["state"])
    ]
    page, more = paging.page_of(listed, limit, _key)
    return {"items": page, "next": paging.following(request, response, more), **freshness(seen)}


@router.get("/servers/{peer_id}", response=PeerDocument, summary="One server: what it serves, and whether it can be reached")
def server(request: HttpRequest, peer_id: str, swarm: SwarmName = "") -> dict[str, Any]:
    seen = sight.look(request, swarm, OF_SNAPSHOT)
    found = sorted((one for one in every(seen) if one["peer_id"] == peer_id), key=_key)
    if not found:
        raise Problem(
            UNKNOWN_SERVER, f"nothing is known of {peer_id!r} here. If it was just started: with the same bootstrap peers?"
        )
    named = [one["public_name"] for one in found if one["public_name"]]
    told = {"swarm": seen.swarm, "peer_id": peer_id, "public_name": named[0] if named else None, "serves": found}
    return {**told, **freshness(seen)}


def every(seen: Watch) -> list[dict[str, Any]]:
    """All servers of the snapshot and those that left lately, each with its model."""
    published = seen.published
    if published is None:
        return []
    fresh = freshness(seen)

    found = []
    for model in published.snapshot.models:
        believed = beliefs(published, as_of_now(published, model))
        for one in (*model.servers, *published.absent.get(model.prefix, ())):
            told = server_document(published, model.prefix, one, believed)
            found.append({"swarm": seen.swarm, "prefix": model.prefix, **told, **fresh})
    return found


def _key(one: dict[str, Any]) -> tuple[str, str]:
    return one["peer_id"], one["prefix"]
