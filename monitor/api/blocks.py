"""The blocks of a model one by one, and the gaps of all models: where a server is missing most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from monitor.api import sight
from monitor.api.caching import OF_SNAPSHOT
from monitor.api.typed import Document, Fresh, Moment, OfModel, PeerId, Prefix, SwarmName, freshness
from monitor.history.troubles import Trouble, troubles
from monitor.published import Watch, coverage_as_of_now, rfc3339
from swarm.coverage import THIN_REDUNDANCY, Block, coverage
from swarm.snapshot import Model
from swarm.wire.spans import Span

router = Router(tags=["models"])

BlockState = Literal["served", "one-server", "no-server", "unknown"]
GapState = Literal["no-server", "unknown", "one-server"]
_WORST_FIRST: tuple[GapState, ...] = ("no-server", "unknown", "one-server")


class Since(Document):
    """When something began, as near as the monitor saw it."""

    after: Moment | None = Field(description="When all was still well; null where nobody had looked")
    before: Moment = Field(description="When it was first seen")


class BlockDocument(Document):
    index: int = Field(description="From 0", examples=[12], ge=0)
    state: BlockState = Field(
        description="`served`: by two or more; `unknown`: its key could not be read, or stale", examples=["served"]
    )
    redundancy: int | None = Field(description="Servers online; null where not known", examples=[2])
    online: list[PeerId] = Field(description="Who holds it")
    joining: list[PeerId] = Field(description="Who is loading it")
    throughput_tokens_per_second: float | None = Field(
        description="What its servers manage together, each as far as it is believed; null where that is not known of any",
        examples=[620.0],
    )
    reported_tokens_per_second: float | None = Field(
        description="The same as they report it; null where none does", examples=[620.0]
    )
    since: Since | None = Field(description="Since when it has no server or one; null where it has more, or that is not known")


class BlockList(Fresh):
    """All blocks of one model, in order."""

    swarm: str = Field(examples=["main"])
    prefix: Prefix
    num_blocks: int = Field(examples=[80], ge=1)
    items: list[BlockDocument]


class Left(Document):
    """A server that was there before."""

    peer_id: PeerId
    how: str = Field(description="How it left, in words", examples=["left normally"])


class Gap(Fresh):
    """Consecutive blocks of one model that lack servers in the same way."""

    swarm: str = Field(examples=["main"])
    prefix: Prefix
    state: GapState = Field(examples=["no-server"])
    start: int = Field(description="First block", examples=[12], ge=0)
    end: int = Field(description="One more than the last block", examples=[18], ge=1)
    blocks: str = Field(description="The same for people", examples=["blocks 12–17"])
    online: list[PeerId] = Field(description="Who holds any of them", examples=[[]])
    joining: list[PeerId] = Field(description="Who is loading any of them", examples=[[]])
    since: Since | None = Field(description="When the first of them came to this; null where that is not known")
    left: list[Left] = Field(description="Who was seen to leave them")
    incident_id: int | None = Field(description="For `/api/v1/incidents/ID`; null where it is too young for one", examples=[31])


class GapList(Fresh):
    """Worst first: blocks without a server, then blocks that could not be read, then blocks with one server."""

    items: list[Gap]


@router.get(
    "/models/{prefix}/blocks", response=BlockList, summary="Each block of a model: who holds it, how fast, since when not"
)
def blocks(request: HttpRequest, prefix: str, swarm: SwarmName = "") -> dict[str, Any]:
    seen = sight.look(request, swarm, OF_SNAPSHOT)
    published, model = sight.published_model(seen, prefix)
    known = troubles(seen.swarm, prefix)
    items = [_block_document(block, known) for block in coverage_as_of_now(published, model).blocks]
    told = {"swarm": seen.swarm, "prefix": prefix, "num_blocks": model.num_blocks, "items": items}
    return {**told, **freshness(seen)}


@router.get("/gaps", response=GapList, summary="Blocks that lack servers, worst first, over all models")
def gaps(request: HttpRequest, swarm: SwarmName = "", prefix: OfModel = "") -> dict[str, Any]:
    """What a server of so many blocks should take is `/api/v1/needed`."""
    seen = sight.look(request, swarm, OF_SNAPSHOT)
    models = seen.published.snapshot.models if seen.published else ()
    wanted = [model for model in models if prefix in ("", model.prefix)]
    if prefix and not wanted:
        sight.published_model(seen, prefix)
    found = [gap for model in wanted for gap in _gaps_of(seen, model)]
    found.sort(key=lambda gap: (_WORST_FIRST.index(gap["state"]), gap["prefix"], gap["start"]))
    return {"items": found, **freshness(seen)}


def _state(block: Block) -> BlockState:
    if block.redundancy is None:
        return "unknown"
    if block.redundancy == 0:
        return "no-server"
    return "one-server" if block.redundancy < THIN_REDUNDANCY else "served"


def _block_document(block: Block, known: Mapping[tuple[str, int], Trouble]) -> dict[str, Any]:
    state = _state(block)
    return {
        "index": block.index,
        "state": state,
        "redundancy": block.redundancy,
        "online": list(block.online),
        "joining": list(block.joining),
        "throughput_tokens_per_second": block.throughput,
        "reported_tokens_per_second": block.reported,
        "since": _since([known[state, block.index]]) if (state, block.index) in known else None,
    }


def _gaps_of(seen: Watch, model: Model) -> list[dict[str, Any]]:
    covered = coverage_as_of_now(seen.published, model) if seen.published else coverage(model)
    spans = [
        (state, span)
        for state, part in zip(_WORST_FIRST, (covered.holes, covered.unread, covered.thin), strict=True)
        for span in part
    ]
    known = troubles(seen.swarm, model.prefix) if spans else {}
    return [_gap(seen, model.prefix, state, span, covered.blocks[span.start : span.end], known) for state, span in spans]


def _gap(
    seen: Watch, prefix: str, state: GapState, span: Span, held: Iterable[Block], known: Mapping[tuple[str, int], Trouble]
) -> dict[str, Any]:
    members = list(held)
    reasons = [known[state, block] for block in span if (state, block) in known]
    left = {
        departure.peer_id: departure.how for trouble in reasons for departure in trouble.left if departure.blocks & set(span)
    }
    return {
        "swarm": seen.swarm,
        "prefix": prefix,
        "state": state,
        "start": span.start,
        "end": span.end,
        "blocks": span.in_words(),
        "online": sorted({peer for block in members for peer in block.online}),
        "joining": sorted({peer for block in members for peer in block.joining}),
        "since": _since(reasons),
        "left": [{"peer_id": peer, "how": how} for peer, how in sorted(left.items())],
        "incident_id": next((trouble.incident_id for trouble in reasons if trouble.confirmed), None),
        **freshness(seen),
    }


def _since(reasons: list[Trouble]) -> dict[str, Any] | None:
    if not reasons:
        return None
    first = min(reasons, key=lambda trouble: trouble.before)
    return {"after": rfc3339(first.after) if first.after is not None else None, "before": rfc3339(first.before)}
