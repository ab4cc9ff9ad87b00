"""Doors of the pages for people: what is needed, what fits, what if, hints and their outcomes. Complete without scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe

from coordinator import forms, limits, outcomes
from coordinator import needed as needs
from coordinator.models import Lease
from coordinator.places import Place, place_of
from coordinator.shown import shown
from coordinator.sight import NotSeen, prospects_of, published_of
from monitor.published import Published, ago, standings
from monitor.swarms import named
from swarm.snapshot import Model, PeerState

HINTS_LISTED = 50


@require_safe
def what_if(request: HttpRequest, swarm: str = "") -> HttpResponse:
    place = place_of(request, swarm)
    form, complaints = forms.read(forms.WhatIfForm, request.GET.dict())
    page: dict[str, Any] = {"form": form, "complaints": complaints}
    try:
        limits.count(limits.PLANS_OF_AN_ADDRESS, limits.address_of(request))
        published = published_of(place.name)
    except NotSeen as error:
        return page_of(request, "what_if", place, {**page, "blind": str(error)})
    except limits.TooMany as error:
        return too_many(request, place, error)
    model = chosen_model(published, form.model, complaints)
    page |= {"models": [item.model for item in standings(published)], "model": model}
    if model is not None:
        page["servers"] = [server for server in model.servers if server.state is not PeerState.GONE]
        prospects = prospects_of(published, model)
        if form.add_blocks is not None or form.leaves is not None:
            try:
                page["result"] = needs.what_if(published, model, form.add_blocks, form.leaves, form.throughput, prospects)
            except needs.NoSuchServer as error:
                complaints.append(f"{error}.")
    return page_of(request, "what_if", place, page)


@require_safe
def hints(request: HttpRequest, swarm: str = "") -> HttpResponse:
    place = place_of(request, swarm)
    form, complaints = forms.read(forms.HintsForm, request.GET.dict())
    newest = shown(Lease.objects.filter(swarm=place.name)).defer("inputs").order_by("-created_at")
    newest = newest if form.model is None else newest.filter(Q(prefix=form.model) | Q(origin_prefix=form.model))
    days = outcomes.days(place.name, form.model, datetime.now(UTC))
    page = {
        "form": form,
        "complaints": complaints,
        "leases": [{"lease": lease, "took": _took(lease.repaired_s)} for lease in newest[:HINTS_LISTED]],
        "days": [{"day": day, "repaired": _took(day.repaired_s)} for day in days],
    }
    return page_of(request, "hints", place, page)


@require_safe
def one_hint(request: HttpRequest, hint_id: UUID, swarm: str = "") -> HttpResponse:
    """A hint's number says of which swarm it is: an address that names another, or none, leads to the right one."""
    place = place_of(request, swarm)
    lease = shown(Lease.objects.filter(pk=hint_id)).first()
    home = named(lease.swarm) if lease is not None and lease.swarm else None
    if lease is None or home is None:
        raise Http404("there is no such hint")
    if home != place.swarm:
        return HttpResponseRedirect(f"{home.base}/hints/{hint_id}")
    return page_of(
        request, "hint", place, {"lease": lease, "took": _took(lease.repaired_s), "percent": int(100 * lease.progress)}
    )


def chosen_model(published: Published, prefix: str | None, complaints: list[str]) -> Model | None:
    """The model of the form; with a single model in the swarm there is nothing to choose."""
    models = published.snapshot.models
    if prefix is None:
        return models[0] if len(models) == 1 else None
    found = published.snapshot.model(prefix)
    if found is None:
        complaints.append(f"The swarm announces no model with the prefix {prefix}.")
    return found


def _took(seconds: float | None) -> str:
    return "" if seconds is None else ago(seconds)


def too_many(request: HttpRequest, place: Place, error: limits.TooMany) -> HttpResponse:
    response = page_of(request, "too_many", place, {"words": str(error)}, status=429)
    response["Retry-After"] = str(error.retry_after_s)
    return response


def page_of(request: HttpRequest, name: str, place: Place, page: dict[str, Any], status: int = 200) -> HttpResponse:
    context = {"page": page, "base": place.base, "query": place.swarm.query}
    response = render(request, f"coordinator/{name}.html", context, status=status)
    response["Cache-Control"] = "no-cache"
    return response
