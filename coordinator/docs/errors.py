"""Everything that can go wrong under /api/, by HTTP status: what it means and what to do. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """`type` of a problem document leads to `/docs/api#problem-STATUS`."""

    status: int
    title: str
    remedy: str


CATALOGUE = (
    Kind(
        400,
        "The request cannot be answered",
        "The site does not answer to that host name, or what was sent is no JSON. Use the site's own address.",
    ),
    Kind(
        401,
        "The peer has not proved who it is",
        "Sign with the peer's key. The answer brings a fresh nonce, so try again at once.",
    ),
    Kind(404, "There is nothing here", "The detail says what was looked for, and which address lists what there is."),
    Kind(405, "This address does not take this method", "Reads are GET; the header Allow lists what is taken."),
    Kind(413, "The request is too long", "Nothing that is read here is longer than a few kilobytes."),
    Kind(
        422,
        "A value is not what it must be",
        "The member “errors” names each parameter and what is wrong with it. Sending the same again will not help.",
    ),
    Kind(429, "Asked too often", "Wait for as many seconds as the header Retry-After says."),
    Kind(500, "Our fault", "It is in our log. Trying again may help; telling the site's staff when it happened helps more."),
    Kind(
        503,
        "It cannot be answered now",
        "The monitor does not see the swarm, or a part of the site is down. Wait for Retry-After, or half a minute.",
    ),
)
