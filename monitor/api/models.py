"""Models: all of a swarm, worst first, and one."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, Field, create_model

from monitor import documents
from monitor.api import sight
from monitor.api.servers import ServerPart
from monitor.api.typed import Document, Fresh, Moment, Pair, PeerId, Prefix, SwarmName
from monitor.extensions import registered
from monitor.published import standing

router = Router(tags=["models"])


class Route(Document):
    """A client's view: the fewest servers through which a request would pass."""

    exists: bool | None = Field(
        description="Whether a request would get through; null where that is not known", examples=[True]
    )
    servers: list[PeerId] = Field(description="In the order in which they are passed; empty where there is no way")
    words: str = Field(examples=["through 2 servers"])


class Bottleneck(Document):
    """The slowest block: what a client gets at best."""

    block: int = Field(examples=[12], ge=0)
    throughput_tokens_per_second: float = Field(
        description="All its servers together, each as far as it is believed", examples=[310.5]
    )
    reported_tokens_per_second: float | None = Field(
        description="The same as they report it; null where none does", examples=[310.5]
    )


class Canary(Document):
    """A few tokens through the swarm, compared with an answer that is trusted."""

    outcome: str = Field(examples=["expected"])
    at: Moment
    servers: list[PeerId] = Field(description="Through which it passed")
    trusted_by: str = Field(description="Where the expected answer comes from", examples=["configured"])
    detail: str | None = Field(examples=[None])
    seconds: float | None = Field(description="How long it took", examples=[1.8])


class WhenLastSeen(Document):
    """How the model stood in the last snapshot that was believed, at `observed_at`."""

    verdict: Literal["complete", "thin", "broken", "unknown"] = Field(examples=["complete"])
    holes: list[Pair] = Field(description="Blocks that had no server online", examples=[[]])
    thin: list[Pair] = Field(description="Blocks that had one server online", examples=[[]])
    unread: list[Pair] = Field(description="Blocks whose key nobody answered for", examples=[[]])
    one_operator: list[Pair] = Field(description="Blocks whose servers, two or more, went down together", examples=[[]])
    min_redundancy: int | None = Field(examples=[2])
    bottleneck: Bottleneck | None = Field(description="Null where no server said how fast it was")
    blocks: list[int | None] = Field(description="Servers online on each block, from block 0", examples=[[2, 3]])


class ModelPart(Fresh):
    """Can this model be used now, and if not, what is missing?"""

    swarm: str = Field(examples=["main"])
    prefix: Prefix
    repository: str | None = Field(description="Where its weights are, as its servers say", examples=["org/Llama-2-70b-hf"])
    num_blocks: int = Field(description="Blocks of the whole model; see size_known", examples=[80], ge=1)
    size_known: bool = Field(
        description="Whether the index of models says how many blocks it has; where not, num_blocks is what was seen of it",
        examples=[True],
    )
    conflict: str | None = Field(description="What the index of models holds against this", examples=[None])
    verdict: Literal["complete", "thin", "broken", "unknown"] = Field(
        description="`complete`: every block has two servers or more; `thin`: some have one; `broken`: some have none;"
        " `unknown`: the swarm, or a key that matters, could not be read, or nobody says how large the model is",
        examples=["complete"],
    )
    sentence: str = Field(description="The same for people", examples=["runs; every block has two or more servers"])
    since: Moment | None = Field(description="When the verdict became this, as far as the monitor saw")
    holes: list[Pair] = Field(description="Blocks without a server online; empty while stale", examples=[[]])
    thin: list[Pair] = Field(description="Blocks with one server online; empty while stale", examples=[[]])
    unread: list[Pair] = Field(
        description="Blocks whose key nobody answered for: they may have servers; all of them while stale", examples=[[]]
    )
    one_operator: list[Pair] = Field(
        description="Blocks with several servers online that are all in one network, or of one name where that is not known:"
        " they go down together; empty while stale",
        examples=[[]],
    )
    route: Route
    when_last_seen: WhenLastSeen | None = Field(
        description="How it was, while nobody sees how it is; null where it is not stale"
    )
    min_redundancy: int | None = Field(
        description="Servers online on the block with the fewest; null where not known", examples=[2]
    )
    bottleneck: Bottleneck | None = Field(description="Null where no server says how fast it is, and while stale")
    servers: list[ServerPart] = Field(description="In order of their first block; then those that left within the last hour")
    blocks: list[int | None] = Field(
        description="Servers online on each block, from block 0; null where not known", examples=[[2, 3]]
    )
    canary: Canary | None = Field(description="The last text that was generated to try the model; null where none was lately")
    held: str | None = Field(description="Why what was seen since is not believed; null where it is", examples=[None])


def _extended() -> type[ModelPart]:
    """With what others add to a model's document (`monitor.extensions`), typed as they say."""
    added: dict[str, Any] = {
        extension.key: (list[extension.item] if extension.item else list[dict[str, Any]], Field(description=extension.about))  # type: ignore[name-defined]
        for extension in registered()
    }
    return create_model("ModelDocument", __base__=ModelPart, __doc__=ModelPart.__doc__, **added)


ModelDocument: type[BaseModel] = _extended()


class BootstrapAddress(Document):
    """One address of a bootstrap peer, without its host."""

    peer_id: PeerId
    family: str = Field(description="Kind of address", examples=["ip4"])
    endpoint: str = Field(description="Its transport and port", examples=["tcp/31337"])
    step: str = Field(description="`ok`, or where a query through it ended: dns, tcp, dht", examples=["ok"])
    detail: str | None = Field(description="The error, without addresses", examples=[None])


class LastCrawl(Document):
    """The newest look at the swarm, whatever came of it."""

    succeeded: bool = Field(description="Whether it was read and believed", examples=[True])
    held: bool = Field(description="Whether it was read and is not believed", examples=[False])
    reason: str | None = Field(description="Why it failed or is not believed", examples=[None])
    confirmed: str | None = Field(description="How a doubt about it was settled", examples=[None])
    finished_at: Moment
    bootstraps_up: int = Field(description="Bootstrap peers that answered", examples=[2], ge=0)
    bootstraps: int = Field(description="Bootstrap peers that there are", examples=[2], ge=0)
    bootstrap_addresses: list[BootstrapAddress]
    split: str | None = Field(description="Bootstrap peers that do not know the same swarm", examples=[None])
    overran: bool = Field(description="Whether it took longer than the time between two", examples=[False])
    keys_unread: int = Field(description="DHT keys that nobody answered for", examples=[0], ge=0)
    dropped: dict[str, int] = Field(description="Records left out, by reason", examples=[{"subkey": 1}])


class ModelList(Fresh):
    """All models of a swarm, worst first."""

    items: list[ModelDocument]  # type: ignore[valid-type]
    held: str | None = Field(description="Why what was seen since is not believed; null where it is", examples=[None])
    last_crawl: LastCrawl | None = Field(description="Null before the first")


@router.get(
    "/models",
    response=ModelList,
    by_alias=True,
    summary="Every model, worst first: can it run, who serves what, which blocks are missing",
)
def models(request: HttpRequest, swarm: SwarmName = "") -> dict[str, Any]:
    return documents.models_document(sight.look(request, swarm))


@router.get("/models/{prefix}", response=ModelDocument, by_alias=True, summary="One model")
def model(request: HttpRequest, prefix: str, swarm: SwarmName = "") -> dict[str, Any]:
    seen = sight.look(request, swarm)
    published, found = sight.published_model(seen, prefix)
    return documents.model_document(published, standing(published, found))
