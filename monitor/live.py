"""Renders each page's fragment once and sends it to everyone who has that page open. The first load uses the same templates.

Redis carries this. Where it is down nothing is pushed, and pages poll instead: nothing here may fail its caller.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.core.cache import cache
from django.template.loader import render_to_string
from django.utils.html import escape
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from monitor import pages
from monitor.extensions import registered
from monitor.published import Watch
from monitor.queries import watch
from monitor.swarms import named

log = logging.getLogger(__name__)

PUSH_GAP_S = 2
"""At most one push in so many seconds: people read slower, and each push is rendered and parsed."""
PENDING_FOR_S = 30
"""A push that no worker took within this time is asked for anew."""


def request_push(swarm: str) -> None:
    """Asks for one push soon. Many requests at once end in one; a request during a push ends in another after it."""
    try:
        if not cache.add(f"push.pending.{swarm}", 1, timeout=PENDING_FOR_S):
            return
        wait_s = 0 if cache.add(f"push.recent.{swarm}", 1, timeout=PUSH_GAP_S) else PUSH_GAP_S
        current_app.send_task("monitor.tasks.push", args=[swarm], countdown=wait_s, retry=False, ignore_result=True)
    except (RedisError, OperationalError) as error:
        log.warning("no push: Redis does not answer (%s)", error)


def push(swarm: str) -> None:
    # Before reading: what is committed from now on is not in this push, and must be able to ask for the next one.
    cache.delete(f"push.pending.{swarm}")
    cache.set(f"push.recent.{swarm}", 1, timeout=PUSH_GAP_S)
    seen = watch(swarm)
    send = async_to_sync(_send_all)
    send({page_of(swarm, page): render(page, seen).message for page in page_keys(seen)})


def page_keys(seen: Watch) -> list[str]:
    models = seen.published.snapshot.models if seen.published else ()
    return ["overview", *(model_key(model.prefix) for model in models)]


def model_key(prefix: str) -> str:
    return f"m/{prefix}"


def page_of(swarm: str, page: str) -> str:
    """The page's key with its swarm, where that is not the first one: what stands in the address of its socket."""
    watched = named(swarm)
    return f"{watched.base}/{page}".lstrip("/") if watched is not None else page


def group_of(page: str) -> str:
    """Channels allows 100 characters of few kinds in a group's name; a prefix may have 128."""
    return "page." + hashlib.sha256(page.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Rendered:
    """`html` is the inner HTML of the page's live part; `found` is False where there is no such model."""

    title: str
    html: str
    found: bool = True

    @property
    def message(self) -> str:
        """What a page that is open already is sent: the title travels in front."""
        return f"<title>{escape(self.title)}</title>\n{self.html}"


def render(page: str, seen: Watch) -> Rendered:
    if page == "overview":
        shown = pages.overview_page(seen)
        return Rendered(shown.title, render_to_string("monitor/_overview.html", {"page": shown, **_addresses(seen.swarm)}))
    prefix = page.removeprefix("m/")
    model = pages.model_page(seen, prefix)
    if model is None:
        absent = pages.absent_page(seen, prefix)
        return Rendered(
            absent.title, render_to_string("monitor/_absent.html", {"page": absent, **_addresses(seen.swarm)}), found=False
        )
    context = {"page": model, "extensions": _extensions(seen.swarm, prefix), **_addresses(seen.swarm)}
    return Rendered(model.title, render_to_string("monitor/_model.html", context))


def _addresses(swarm: str) -> dict[str, str]:
    watched = named(swarm)
    found = {"base": watched.base, "query": watched.query} if watched is not None else {"base": "", "query": ""}
    return {"swarm_name": swarm, **found}


def _extensions(swarm: str, prefix: str) -> list[str]:
    return [
        render_to_string(extension.template, {"items": extension.documents(swarm, prefix), "prefix": prefix})
        for extension in registered()
    ]


async def _send_all(fragments: dict[str, str]) -> None:
    layer = get_channel_layer()
    assert layer is not None  # settings.py sets one
    for page, html in fragments.items():
        await layer.group_send(group_of(page), {"type": "page.changed", "html": html})
