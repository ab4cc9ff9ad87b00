"""The monitor's reads under /api/v1. Doors: ask, call, serialise. Errors become problem details where they are mounted."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from ninja import Router
from ninja.errors import HttpError

from monitor import documents, petals_state, queries, reachability, swarms

router = Router(tags=["swarm"])

FRESH = "public, max-age=5, stale-while-revalidate=30, stale-if-error=300"


@router.get("/state", summary="The swarm as health.petals.dev writes it")
def state(request: HttpRequest, swarm: str = "") -> JsonResponse:
    return _cacheable(petals_state.state_document(queries.watch(_swarm(swarm))))


@router.get("/models", summary="Every model, worst first: can it run, who serves what, which blocks are missing")
def models(request: HttpRequest, swarm: str = "") -> JsonResponse:
    return _cacheable(documents.models_document(queries.watch(_swarm(swarm))))


@router.get("/models/{prefix}", summary="One model")
def model(request: HttpRequest, prefix: str, swarm: str = "") -> JsonResponse:
    document = documents.one_model_document(queries.watch(_swarm(swarm)), prefix)
    if document is None:
        raise HttpError(404, f"the swarm announces no model with the prefix {prefix!r}; /api/v1/models lists those it does")
    return _cacheable(document)


@router.get("/is_reachable/{peer_id}", summary="Dials a peer and says whether others can reach it")
async def is_reachable(request: HttpRequest, peer_id: str, swarm: str = "") -> JsonResponse:
    """Always 200 where we could find out. 503 where we could not: Petals servers then skip the check and go online."""
    answer = await reachability.ask(peer_id, swarm=_swarm(swarm))
    if not answer["checked"]:
        raise HttpError(503, answer["message"])
    your_ip = reachability.caller_address(
        request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", ""), settings.SEPAL_TRUSTED_PROXIES
    )
    response = JsonResponse({"success": answer["success"], "message": answer["message"], "your_ip": your_ip})
    response["Cache-Control"] = "private, no-store"
    return response


@router.get("/swarms", summary="The swarms that are watched here; the first is meant where an address names none")
def all_swarms(request: HttpRequest) -> JsonResponse:
    items = [{"name": swarm.name, "label": swarm.label, "page": f"{swarm.base}/"} for swarm in swarms.configured()]
    return _cacheable({"items": items})


def _swarm(name: str) -> str:
    watched = swarms.named(name)
    if watched is None:
        raise HttpError(404, f"no swarm {name!r} is watched here; /api/v1/swarms lists those that are")
    return watched.name


def _cacheable(document: dict[str, object]) -> JsonResponse:
    response = JsonResponse(document)
    response["Cache-Control"] = FRESH
    return response
