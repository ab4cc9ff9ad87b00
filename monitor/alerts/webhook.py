"""One signed POST. Redirects are not followed, answers are not read, and no proxy of ours is used."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from http import HTTPStatus

import httpx
from django.conf import settings

from monitor.alerts.destinations import BadDestination, Destination, Resolve, public_address, read
from monitor.alerts.models import Delivery
from monitor.alerts.outbox import DeliveryFailed
from monitor.alerts.signing import DELIVERY, SIGNATURE, TIMESTAMP, signature

TIMEOUT_S = 15.0
"""In all, also for a receiver that answers one byte at a time."""


def post(delivery: Delivery, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
    """Raises DeliveryFailed. 2xx is success; 410 ends the subscription; other 3xx and 4xx are final, except those that say
    "later"."""
    private = bool(settings.SEPAL_ALERTS_PRIVATE)
    try:
        destination = read(delivery.subscription.address, private=private)
    except BadDestination as error:
        raise DeliveryFailed(str(error), permanent=True) from error
    body = json.dumps({"id": str(delivery.pk), **delivery.message}, ensure_ascii=False).encode()
    try:
        status = asyncio.run(_post(destination, _headers(delivery, destination, body), body, resolve or _look_up, tls, private))
    except TimeoutError as error:
        raise DeliveryFailed(f"no answer within {TIMEOUT_S:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
        # Not the error's text: it may name addresses of our own network.
        raise DeliveryFailed(f"the connection failed ({type(error).__name__})") from error
    _check(status)


def _headers(delivery: Delivery, destination: Destination, body: bytes) -> dict[str, str]:
    now = int(time.time())
    return {
        "Host": destination.authority,
        "Content-Type": "application/json",
        "User-Agent": f"Sepal ({settings.SEPAL_URL})",
        DELIVERY: str(delivery.pk),
        TIMESTAMP: str(now),
        SIGNATURE: signature(delivery.subscription.signing_key, now, body),
    }


async def _post(
    destination: Destination, headers: dict[str, str], body: bytes, resolve: Resolve, tls: ssl.SSLContext | None, private: bool
) -> int:
    async with asyncio.timeout(TIMEOUT_S):
        address = await public_address(destination, resolve, private=private)
        host = f"[{address}]" if ":" in address else address
        url = f"{destination.scheme}://{host}:{destination.port}{destination.target}"
        # The certificate must be that of the name, though the connection goes to the address.
        named = {"sni_hostname": destination.host}
        async with (
            httpx.AsyncClient(
                verify=tls if tls is not None else True, trust_env=False, follow_redirects=False, timeout=TIMEOUT_S
            ) as client,
            client.stream("POST", url, headers=headers, content=body, extensions=named) as answer,
        ):
            return answer.status_code


async def _look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, proto=6)  # TCP
    return [str(entry[4][0]) for entry in found]


def _check(status: int) -> None:
    if 200 <= status < 300:
        return
    if status == HTTPStatus.GONE:
        raise DeliveryFailed("the receiver answered 410: it wants nothing any more", gone=True)
    if 300 <= status < 400:
        raise DeliveryFailed(f"the receiver answered {status}, and redirects are not followed", permanent=True)
    later = status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
    raise DeliveryFailed(f"the receiver answered {status}", permanent=not later)
