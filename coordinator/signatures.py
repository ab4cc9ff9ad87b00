"""Who is asking? Gives out nonces, and takes a signed request's nonce exactly once (docs/threat-model.md).

A nonce lives in Redis until it is used or two minutes old. Without Redis no signature can be told from a replay, so none is
accepted: servers then decide by themselves.
"""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from django.core.cache import cache
from django.http import HttpRequest
from redis.exceptions import RedisError

from coordinator.addresses import signed_path
from swarm.errors import BadRecord
from swarm.wire.identity import Signed, check, parse_proof

NONCE_LIFE_S = 120
"""Longer than a server's time between two questions, so that the nonce that came with an answer serves for the next."""


class Refused(Exception):
    """There is a signature, and it does not count. The answer brings a new nonce, for a second try."""


class CannotCheck(Exception):
    """Nobody's fault but ours: Redis does not answer."""


def new_nonce() -> str:
    nonce = secrets.token_urlsafe(18)
    try:
        cache.set(_key(nonce), 1, timeout=NONCE_LIFE_S)
    except RedisError as error:
        raise CannotCheck("signatures cannot be checked at the moment") from error
    return nonce


def signer_of(request: HttpRequest, peer_id: str) -> bool:
    """Whether `peer_id` itself sent this request: False where nothing is signed; Refused where the signature is no good."""
    header = request.headers.get("Authorization")
    if header is None:
        return False
    try:
        proof = parse_proof(header)
        # Django has checked it against ALLOWED_HOSTS: a signature made for another site's name does not fit here.
        host = urlsplit(f"//{request.get_host()}").hostname or ""
        check(proof, Signed(request.method or "", host, signed_path(request), request.body, proof.nonce, peer_id))
    except BadRecord as error:
        raise Refused(error.detail) from error
    # Last, so that a nonce is used up only by a request that is right in everything else.
    if not _use_up(proof.nonce):
        raise Refused("the nonce is unknown, was used before, or is too old")
    return True


def _use_up(nonce: str) -> bool:
    """Deleting is one step in Redis: of two requests with one nonce, one finds it gone."""
    try:
        return bool(cache.delete(_key(nonce)))
    except RedisError as error:
        raise CannotCheck("signatures cannot be checked at the moment") from error


def _key(nonce: str) -> str:
    return f"nonce.{nonce}"
