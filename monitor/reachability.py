"""Can others reach this peer? The question of a starting Petals server, put to the crawl worker, which dials.

Answers travel through the cache under the question's own key, and not through Celery's result backend, whose subscriptions
are not meant for the threads of a web server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
import uuid
from collections.abc import Sequence
from typing import Any

from asgiref.sync import sync_to_async
from celery import current_app
from django.conf import settings
from django.core.cache import cache
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from monitor.privacy import without_addresses
from swarm.errors import BadRecord
from swarm.snapshot import Outcome, Visit
from swarm.wire.keys import parse_peer_id

WAIT_S = 9.0
"""A Petals server gives up on the HTTP answer after 10 s, and then goes on unchecked."""
POLL_S = 0.1
ASK_AGAIN_AFTER_S = 10
"""A Petals server asks every 15 s until it is reached. Whoever asks more often would have us knock at somebody's door."""
ANSWER_LIVES_S = 60

_WHY = {
    Outcome.REFUSED: "nothing accepts connections at the addresses that it announces: is the port open and forwarded?",
    Outcome.NO_ADDRESS: "the swarm knows no address of it: is it connected to the same bootstrap peers?",
    Outcome.TIMEOUT: "it did not answer in time: a firewall may drop what comes in",
}


async def ask(peer_id: str, swarm: str = "", caller: str = "", wait_s: float = WAIT_S) -> dict[str, Any]:
    """`{"checked", "success", "message"}`; `checked` is False where we could not find out: that says nothing of the peer.

    What the same caller asked about the same peer within ASK_AGAIN_AFTER_S is not dialled again: the answer is the same one,
    or the one that is still awaited.
    """
    refused = refusal(peer_id)
    if refused is not None:
        return {"checked": True, "success": False, "message": refused}
    give_up = time.monotonic() + wait_s
    try:
        question = await _question(peer_id, swarm, caller, wait_s)
        while time.monotonic() < give_up:
            answer: dict[str, Any] | None = await cache.aget(answer_key(question))
            if answer is not None:
                return answer
            await asyncio.sleep(POLL_S)
    except (RedisError, OperationalError) as error:
        return no_answer(f"the monitor could not check: its queue does not answer ({type(error).__name__})")
    return no_answer(f"the monitor could not check: its crawl worker did not answer within {wait_s:g} s")


def refusal(peer_id: str) -> str | None:
    """Why nobody can be dialled under this name; None where somebody may."""
    try:
        parse_peer_id(peer_id)
    except BadRecord as error:
        return error.detail
    return None


async def _question(peer_id: str, swarm: str, caller: str, wait_s: float) -> str:
    """Puts it to the crawl worker, unless the same question was put just now."""
    question, asked = uuid.uuid4().hex, _asked_key(peer_id, swarm, caller)
    if caller and not await cache.aadd(asked, question, timeout=ASK_AGAIN_AFTER_S):
        before: str | None = await cache.aget(asked)
        if before is not None:
            return before
    await sync_to_async(current_app.send_task)(
        *("monitor.tasks.dial", [peer_id, question, swarm]), queue="crawl", expires=wait_s, retry=False, ignore_result=True
    )
    return question


def _asked_key(peer_id: str, swarm: str, caller: str) -> str:
    """Callers are told apart without their address being kept."""
    # With the time, so that what a clock that was ahead has left in Redis answers nobody later.
    words = f"{caller} {swarm} {peer_id} {time.time() // ASK_AGAIN_AFTER_S:.0f}"
    who = hmac.new(settings.SECRET_KEY.encode(), words.encode(), hashlib.sha256).hexdigest()
    return f"asked.{who[:32]}"


def answer_of(visit: Visit) -> dict[str, Any]:
    """A peer that speaks libp2p but serves no blocks yet has been reached: servers ask before they announce."""
    if visit.outcome in (Outcome.ANSWERED, Outcome.PROTOCOL_ABSENT, Outcome.NOT_HELD):
        return {"checked": True, "success": True, "message": "reached"}
    why = _WHY.get(visit.outcome, "it could not be reached")
    return {"checked": True, "success": False, "message": f"{why} ({without_addresses(visit.detail)})"}


def no_answer(message: str) -> dict[str, Any]:
    return {"checked": False, "success": False, "message": message}


def answer_key(question: str) -> str:
    return f"dial.{question}"


def caller_address(remote: str, forwarded_for: str, trusted_proxies: Sequence[str]) -> str:
    """Who asks: the right-most address of X-Forwarded-For that is none of our proxies, where a proxy of ours is asking.

    Entries further left are the caller's own words. Proxies are addresses or networks.
    """
    networks = [ipaddress.ip_network(proxy, strict=False) for proxy in trusted_proxies]

    def trusted(text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in networks)

    seen = remote
    for hop in reversed([part.strip() for part in forwarded_for.split(",") if part.strip()]):
        if not trusted(seen):
            break
        try:
            seen = str(ipaddress.ip_address(hop))
        except ValueError:
            break
    return seen
