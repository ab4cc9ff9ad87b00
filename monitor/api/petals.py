"""What Petals servers and readers of health.petals.dev ask for: its state document, and whether a peer can be reached."""

from __future__ import annotations

from typing import Any, Literal

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from ninja import Router
from pydantic import Field

from monitor import petals_state, reachability
from monitor.api import sight
from monitor.api.caching import OF_SNAPSHOT, PRIVATE
from monitor.api.problems import NOT_CHECKED, Problem
from monitor.api.typed import Document, PeerId, SwarmName
from monitor.limits import DIALS_OF_AN_ADDRESS, address_of, count

router = Router(tags=["as health.petals.dev"])

ServerWord = Literal["online", "joining", "offline", "unreachable", "unknown"]


class Adapter(Document):
    name: str = Field(examples=["org/adapter"])
    short_name: str = Field(examples=["adapter"])


class ServerInfo(Document):
    """What the server announces. Null: not said."""

    state: Literal["offline", "joining", "online"] = Field(examples=["online"])
    throughput: float = Field(
        description="Tokens per second; 0 where it is not said, since readers do arithmetic with it", examples=[310.5]
    )
    start_block: int | None = Field(examples=[0])
    end_block: int | None = Field(examples=[40])
    public_name: str | None = Field(examples=["duck"])
    version: str | None = Field(examples=["2.3.0"])
    network_rps: float | None = Field(examples=[1185.5])
    forward_rps: float | None = Field(examples=[9887.5])
    inference_rps: float | None = Field(examples=[343.25])
    adapters: list[str] = Field(examples=[["org/adapter"]])
    torch_dtype: str | None = Field(examples=["bfloat16"])
    quant_type: str | None = Field(examples=["nf4"])
    using_relay: bool | None = Field(examples=[False])
    cache_tokens_left: int | None = Field(examples=[1179648])
    next_pings: dict[str, float | None] = Field(description="Seconds by peer id; null: no answer", examples=[{}])


class SpanInfo(Document):
    peer_id: PeerId
    start: int = Field(examples=[0], ge=0)
    end: int = Field(examples=[40], ge=1)
    server_info: ServerInfo


class ServerRow(Document):
    short_peer_id: str = Field(examples=["...6rPxc8"])
    peer_id: PeerId
    peer_ip_info: Literal["unknown"] = Field(
        description="No address and no place of anybody is published here", examples=["unknown"]
    )
    show_public_name: bool = Field(examples=[True])
    state: ServerWord = Field(
        description="`unknown` where the monitor does not see the swarm, or did not look", examples=["online"]
    )
    span: SpanInfo
    adapters: list[Adapter]
    pings_to_me: dict[str, float | None] = Field(description="Seconds by peer id; null: no answer", examples=[{}])
    cache_tokens_left_per_block: int = Field(0, description="Left out where it is not known", examples=[14745])


class ModelReport(Document):
    name: str = Field(examples=["org/Llama-2-70b-hf"])
    short_name: str = Field(examples=["Llama-2-70b-hf"])
    state: Literal["healthy", "broken", "unknown"] = Field(examples=["healthy"])
    server_rows: list[ServerRow]
    num_blocks: int = Field(examples=[80], ge=1)
    repository: str | None = Field(examples=["https://huggingface.co/org/Llama-2-70b-hf"])
    dht_prefix: str = Field(examples=["Llama-2-70b-hf"])
    official: bool = Field(description="Always false: no model is ours", examples=[False])
    limited: bool = Field(description="Always false", examples=[False])


class Issue(Document):
    peer_id: PeerId
    err: str = Field(description="Without addresses", examples=["no answer within 5 s"])


class StateDocument(Document):
    """The shape of health.petals.dev, without addresses and places. What is not known says `unknown`."""

    bootstrap_states: list[Literal["online", "unreachable", "unknown"]] = Field(
        description="`unknown` where none was asked lately", examples=[["online"]]
    )
    top_contributors: dict[str, int] = Field(description="Blocks by public name, the five largest", examples=[{"duck": 40}])
    model_reports: list[ModelReport]
    reachability_issues: list[Issue]
    last_updated: float | None = Field(
        description="Unix seconds of the snapshot; null before the first", examples=[1790000000.0]
    )
    update_period: float = Field(description="Seconds", examples=[30.0])
    update_duration: float | None = Field(description="Seconds", examples=[3.2])


class ReachableDocument(Document):
    success: bool = Field(description="Whether the peer answered a dial made just now", examples=[True])
    message: str = Field(description="What to do where it did not", examples=["reached"])
    your_ip: str = Field(description="The address that this request came from", examples=["::1"])


@router.get("/state", response=StateDocument, summary="The swarm as health.petals.dev writes it")
def state(request: HttpRequest, swarm: SwarmName = "") -> JsonResponse:
    # Checked against its schema in tests and not at each answer: it is the largest document, and some fields may be absent.
    return JsonResponse(
        petals_state.state_document(sight.look(request, swarm, OF_SNAPSHOT)), json_dumps_params={"allow_nan": False}
    )


@router.get("/is_reachable/{peer_id}", response=ReachableDocument, summary="Dials a peer and says whether others can reach it")
async def is_reachable(request: HttpRequest, peer_id: str, swarm: SwarmName = "") -> JsonResponse:
    """Always 200 where we could find out, also for what is no peer id. 503 where we could not: Petals servers then skip the
    check and go online. Only addresses from the swarm's DHT are dialled. The same caller's question about the same peer is
    dialled once in ten seconds; whoever asks more often reads the same answer."""
    watched = sight.named(swarm)
    address = address_of(request)
    if reachability.refusal(peer_id) is None:
        await sync_to_async(count)(DIALS_OF_AN_ADDRESS, address)
    answer: dict[str, Any] = await reachability.ask(peer_id, watched.name, address)
    if not answer["checked"]:
        raise Problem(NOT_CHECKED, answer["message"])
    your_ip = reachability.caller_address(
        request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", ""), settings.SEPAL_TRUSTED_PROXIES
    )
    response = JsonResponse({"success": answer["success"], "message": answer["message"], "your_ip": your_ip})
    response["Cache-Control"] = PRIVATE.header
    return response
