"""Doors: the form, and the page behind the secret link. Plain forms, no cookies: the link itself is the right to use it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from monitor import queries
from monitor.alerts import limits, mail, subscribing
from monitor.alerts.forms import MAX_TARGET, read_form
from monitor.alerts.messages import about
from monitor.alerts.models import Subscription, Way
from monitor.alerts.rules import Topic
from monitor.limits import address_of
from monitor.swarms import WatchedSwarm, configured, named

TOPICS = {
    Topic.MODEL: "a model cannot run, and when it runs again",
    Topic.REDUNDANCY: "a model's blocks have fewer servers than a target",
    Topic.PEER: "a server is lost, and when it is back",
    Topic.BOOTSTRAP: "bootstrap peers do not answer",
    Topic.BLIND: "this monitor does not see the swarm",
    Topic.CANARY: "the canary through a model gets no answer, or not the expected one",
}
LISTED = 10


# No cookie is used here, so that there is nothing which another site could misuse.
@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
def alerts(request: HttpRequest) -> HttpResponse:
    given = (request.POST if request.method == "POST" else request.GET).dict()
    swarm = _swarm(str(given.get("swarm", "")))
    words = {name: str(value) for name, value in given.items()}
    asked, complaints = read_form(words, private=settings.SEPAL_ALERTS_PRIVATE, mail=mail.is_set_up())
    page: dict[str, Any] = {"asked": asked, "complaints": complaints if request.method == "POST" else []}
    if request.method != "POST" or complaints:
        return _form(request, swarm, page, 422 if complaints and request.method == "POST" else 200)
    try:
        limits.count("asked", address_of(request), limits.ASKED_AN_HOUR)
        made = subscribing.subscribe(swarm.name, asked, datetime.now(UTC))
    except subscribing.Refused as error:
        return _form(request, swarm, {**page, "complaints": [str(error)]}, 409)
    except limits.TooMany as error:
        return _too_many(_form(request, swarm, {**page, "complaints": [str(error)]}, 429), error)
    key = made.signing_key if made is not None and made.way == Way.WEBHOOK else ""
    return _page(request, "asked", {"swarm": swarm, "asked": asked, "signing_key": key})


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_variables("secret")
def manage(request: HttpRequest, secret: str) -> HttpResponse:
    subscription = Subscription.objects.filter(secret=secret).first()
    if subscription is None:
        raise Http404("this link leads to no alert: it has been removed, or was not confirmed in time")
    done, now = "", datetime.now(UTC)
    # A mail program's one-click button posts just this (RFC 8058).
    action = "remove" if "List-Unsubscribe" in request.POST else request.POST.get("action", "")
    if request.method == "POST" and action == "remove":
        subscribing.remove(subscription)
        return _page(request, "removed", {})
    if request.method == "POST" and action == "confirm":
        subscribing.confirm(subscription, now)
        done = "Confirmed. You will be told once when it happens, and once when it is over."
    elif request.method == "POST" and action == "test" and subscription.confirmed_at is not None:
        try:
            limits.count("test", str(subscription.pk), limits.TESTS_AN_HOUR)
        except limits.TooMany as error:
            return _too_many(_managed(request, subscription, str(error), 429), error)
        subscribing.test(subscription, now)
        done = "A test is on its way. Reload this page to see what came of it."
    return _managed(request, subscription, done, 200)


def _managed(request: HttpRequest, subscription: Subscription, done: str, status: int) -> HttpResponse:
    subscription.refresh_from_db()
    page = {
        "subscription": subscription,
        "about": about(subscription),
        "is_webhook": subscription.way == Way.WEBHOOK,
        "deliveries": subscription.deliveries.order_by("-created_at")[:LISTED],
        "done": done,
    }
    return _page(request, "manage", page, status)


def _form(request: HttpRequest, swarm: WatchedSwarm, page: dict[str, Any], status: int) -> HttpResponse:
    published = queries.watch(swarm.name).published
    models = [model.prefix for model in published.snapshot.models] if published else []
    more = {"topics": [(topic.value, words) for topic, words in TOPICS.items()], "models": models, "swarms": configured()}
    return _page(request, "form", {**page, **more, "swarm": swarm, "mail": mail.is_set_up(), "most": MAX_TARGET}, status)


def _page(request: HttpRequest, name: str, page: dict[str, Any], status: int = 200) -> HttpResponse:
    response = render(request, f"monitor/alerts/{name}.html", {"page": page}, status=status)
    response["Cache-Control"] = "private, no-store"
    # The address of the page is the secret.
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex"
    return response


def _too_many(response: HttpResponse, error: limits.TooMany) -> HttpResponse:
    response["Retry-After"] = str(error.retry_after_s)
    return response


def _swarm(name: str) -> WatchedSwarm:
    watched = named(name)
    if watched is None:
        raise Http404("this site watches no such swarm")
    return watched
