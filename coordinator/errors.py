"""The pages that the `type` of a problem document leads to: what went wrong, and what to do. The catalogue is the monitor's."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from monitor.api.problems import CATALOGUE


@require_safe
def listed(request: HttpRequest) -> HttpResponse:
    return render(request, "docs/errors.html", {"kinds": CATALOGUE})


@require_safe
def one(request: HttpRequest, slug: str) -> HttpResponse:
    kind = next((kind for kind in CATALOGUE if kind.slug == slug), None)
    if kind is None:
        raise Http404(f"There is no kind of error {slug}.")
    return render(request, "docs/errors.html", {"kinds": [kind], "one": kind})
