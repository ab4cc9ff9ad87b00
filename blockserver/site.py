"""Reads the site's public JSON, for commands that show it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx

from swarm.errors import RemoteError

TIMEOUT_S = 10.0


def is_address(text: str) -> bool:
    url = urlsplit(text)
    return url.scheme in ("http", "https") and bool(url.netloc)


def read_models(site: str) -> list[dict[str, Any]]:
    """The models of the site's first swarm, worst first. Raises as `read_document`."""
    items: list[dict[str, Any]] = read_document(site)["items"]
    return items


def read_document(site: str) -> dict[str, Any]:
    """`GET /api/v1/models`, its models under `items`; RemoteError where nobody answers there as a Sepal site."""
    try:
        response = httpx.get(f"{site.rstrip('/')}/api/v1/models", timeout=TIMEOUT_S)
        response.raise_for_status()
        document: dict[str, Any] = response.json()
        items = document["items"]
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ValueError("no list of models")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise RemoteError(f"{site} does not answer as a Sepal site ({type(error).__name__})") from error
    return document
