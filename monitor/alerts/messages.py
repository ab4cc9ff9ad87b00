"""What is sent, as the JSON of a webhook; e-mails are written from the same. No address and no name of anybody is in it."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from monitor.alerts.models import Subscription
from monitor.alerts.rules import Finding, News, Topic
from monitor.published import rfc3339
from monitor.swarms import named

VERSION = 1

_TITLES = {
    (Topic.MODEL, News.FIRED): "{of} cannot run",
    (Topic.MODEL, News.RECOVERED): "{of} runs again",
    (Topic.REDUNDANCY, News.FIRED): "{of} is below {target} servers a block",
    (Topic.REDUNDANCY, News.RECOVERED): "{of} has {target} servers a block again",
    (Topic.PEER, News.FIRED): "Server {of} is lost",
    (Topic.PEER, News.RECOVERED): "Server {of} is back",
    (Topic.BOOTSTRAP, News.FIRED): "A bootstrap peer does not answer",
    (Topic.BOOTSTRAP, News.WORSE): "NO BOOTSTRAP PEER ANSWERS",
    (Topic.BOOTSTRAP, News.RECOVERED): "All bootstrap peers answer again",
    (Topic.BLIND, News.FIRED): "The monitor does not see the swarm",
    (Topic.BLIND, News.RECOVERED): "The monitor sees the swarm again",
    (Topic.CANARY, News.FIRED): "{of} does not answer as expected",
    (Topic.CANARY, News.RECOVERED): "{of} answers as expected again",
}
_ABOUT = {
    Topic.MODEL: "whether {of} can run",
    Topic.REDUNDANCY: "whether every block of {of} has {target} servers",
    Topic.PEER: "the server {of}",
    Topic.BOOTSTRAP: "the bootstrap peers",
    Topic.BLIND: "whether the monitor sees the swarm",
    Topic.CANARY: "whether {of} answers the canary as expected",
}


def about(subscription: Subscription) -> str:
    """What it watches, as the end of a sentence."""
    return _filled(_ABOUT[Topic(subscription.topic)], subscription)


def of_news(subscription: Subscription, news: News, found: Finding, since: float, now: float) -> dict[str, Any]:
    title = _TITLES.get((Topic(subscription.topic), news)) or _TITLES[Topic(subscription.topic), News.FIRED]
    if found.level > 1 and news is News.FIRED:
        title = _TITLES[Topic(subscription.topic), News.WORSE]
    return {
        **_common(subscription, news, _filled(title, subscription), found.words, now),
        "level": found.level,
        "since": rfc3339(since),
    }


def of_test(subscription: Subscription, now: float) -> dict[str, Any]:
    words = f"This is a test. You will be told about {about(subscription)}."
    return _common(subscription, News.TEST, "Test from Sepal", words, now)


def of_confirmation(subscription: Subscription, now: float) -> dict[str, Any]:
    """The only message that carries the link to a webhook: whoever can read it there owns the address."""
    words = f"Somebody asked us to tell this address about {about(subscription)}. If it was you, open the link and confirm."
    common = _common(subscription, News.CONFIRM, "Confirm your alert", words, now)
    return {**common, "confirm_url": manage_url(subscription)}


def manage_url(subscription: Subscription) -> str:
    return f"{settings.SEPAL_URL}/alerts/{subscription.secret}"


def _common(subscription: Subscription, news: News, title: str, words: str, now: float) -> dict[str, Any]:
    return {
        "version": VERSION,
        "event": news.value,
        "topic": subscription.topic,
        "swarm": subscription.swarm,
        "model": subscription.prefix or None,
        "peer_id": subscription.peer_id or None,
        "target": subscription.target or None,
        "title": title,
        "text": words,
        "at": rfc3339(now),
        "url": _page(subscription),
    }


def _page(subscription: Subscription) -> str:
    watched = named(subscription.swarm)
    base = watched.base if watched else ""
    return f"{settings.SEPAL_URL}{base}/m/{subscription.prefix}" if subscription.prefix else f"{settings.SEPAL_URL}{base}/"


def _filled(text: str, subscription: Subscription) -> str:
    return text.format(of=subscription.prefix or f"…{subscription.peer_id[-6:]}", target=subscription.target)
