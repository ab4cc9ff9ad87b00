"""Doors of the wizard `/connect` and of the page that watches a server appear. Plain forms; complete without scripts."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe

from coordinator import appearing, cards, diagnosis, fits, forms, joining, limits, signs
from coordinator import needed as needs
from coordinator.models import Lease, Phase
from coordinator.places import Place, place_of
from coordinator.sight import NotSeen, prospects_of, published_of
from coordinator.views import chosen_model, page_of, too_many
from monitor import live
from monitor.published import Published, standings
from swarm.errors import BadRecord
from swarm.snapshot import Model


@require_safe
def connect(request: HttpRequest, swarm: str = "") -> HttpResponse:
    place = place_of(request, swarm)
    form, complaints = forms.read(forms.ConnectForm, request.GET.dict())
    if form.peer is not None:
        return _watching(place, form.model, form.peer)
    page: dict[str, Any] = {
        "form": form,
        "complaints": complaints,
        "precisions": list(fits.PRECISIONS),
        "ways": joining.WAYS,
        "cards": [(key, name) for key, (name, _) in cards.CARDS.items()],
        "systems": list(joining.SYSTEMS),
        "checked": _checked(form.code, complaints),
    }
    try:
        limits.count(limits.PLANS_OF_AN_ADDRESS, limits.address_of(request))
        published = published_of(place.name)
    except NotSeen as error:
        return page_of(request, "connect", place, {**page, "blind": str(error)})
    except limits.TooMany as error:
        return too_many(request, place, error)
    model = chosen_model(published, form.model, complaints)
    page["models"] = [item.model for item in standings(published)]
    if model is not None:
        page |= _steps(form, published, model, place)
    return page_of(request, "connect", place, page)


@require_safe
def watch(request: HttpRequest, swarm: str = "") -> HttpResponse:
    """With `?fragment` only the checklist, for a page that is open already."""
    place = place_of(request, swarm)
    form, complaints = forms.read(forms.WatchForm, request.GET.dict())
    if form.peer is not None and form.since is None:
        return _watching(place, form.model, form.peer)
    page: dict[str, Any] = {"form": form, "complaints": complaints}
    try:
        published = published_of(place.name)
    except NotSeen as error:
        return _watch_page(request, place, {**page, "blind": str(error)})
    model = chosen_model(published, form.model, complaints)
    page["models"] = [item.model for item in standings(published)]
    page["model"] = model
    page["socket"] = live.page_of(place.name, live.model_key(model.prefix)) if model is not None else ""
    if model is not None and form.peer is not None:
        page["list"] = appearing.checklist(_seen(published, model, form.peer, form.since), published.interval_s)
    return _watch_page(request, place, page)


def _watching(place: Place, model: str | None, peer: str) -> HttpResponse:
    """To the page that watches, with the moment from which on somebody waits."""
    asked = {**({"model": model} if model else {}), "peer": peer, "since": int(time.time())}
    return HttpResponseRedirect(f"{place.base}/connect/watch?{urlencode(asked)}")


def _watch_page(request: HttpRequest, place: Place, page: dict[str, Any]) -> HttpResponse:
    if "fragment" not in request.GET:
        return page_of(request, "watch", place, page)
    response = render(request, "coordinator/_appearing.html", {"page": page})
    response["Cache-Control"] = "no-cache"
    return response


def _seen(published: Published, model: Model, peer_id: str, since: float | None) -> appearing.Seen:
    now, server = published.read_at, appearing.seen_in(model, peer_id)
    lease = Lease.objects.of_model(published.snapshot.swarm, model.prefix).filter(peer_id=peer_id, phase=Phase.ACCEPTED).first()
    asked_at = signs.first_request_at(published.snapshot.swarm, model.prefix, peer_id)
    sighting = published.sightings.get((model.prefix, peer_id))
    relay = server.record.using_relay if server else None
    via = (server.visit.via if server and server.visit else "") or ("" if relay is None else "relay" if relay else "direct")
    return appearing.Seen(
        server=server,
        via=via,
        loaded=lease.progress if lease is not None and lease.progress > 0 else None,
        first_request_ago_s=max(0.0, now - asked_at) if asked_at is not None else None,
        waited_s=max(0.0, now - since) if since is not None else 0.0,
        since_s=max(0.0, now - sighting.state_since) if sighting else None,
    )


def _checked(code: str | None, complaints: list[str]) -> diagnosis.Diagnosis | None:
    if code is None:
        return None
    try:
        return diagnosis.read(code)
    except BadRecord as error:
        complaints.append(f"Code: {error.detail}.")
        return None


def _steps(form: forms.ConnectForm, published: Published, model: Model, place: Place) -> dict[str, Any]:
    """Steps 1 to 4 for one model: what fits, what helps, how to check, what to run."""
    memory_gb = form.memory_gb or cards.memory_of(form.card)
    fit = None
    if memory_gb is not None:
        fit = fits.fit(model.repository or model.prefix, model.num_blocks, memory_gb, form.precision, form.parameters_b)
    num_blocks = form.num_blocks or (fit.num_blocks if fit else None) or None
    # Where nothing was reckoned and nothing said, the server takes what its checkpoint has.
    precision = form.precision if fit is not None or "precision" in form.model_fields_set else None
    where = (place.join_addresses, place.site, precision)
    prospects = prospects_of(published, model)
    return {
        "model": model,
        "fit": fit,
        "num_blocks": num_blocks,
        "needed": needs.most_needed(published, model, num_blocks or min(needs.USUAL_BLOCKS, model.num_blocks), prospects),
        "doctor": joining.doctor(model.prefix, form.num_blocks, *where),
        "command": joining.command(form.way, model.prefix, form.num_blocks, *where),
        "install": joining.install(precision),
        "has_address": bool(place.join_addresses),
        "system_note": joining.SYSTEMS[form.system],
        "kept_by_code": form.kept(but="code"),
    }
