"""Reads the site's public JSON, for commands that show it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx

from swarm.errors import RemoteError
from swarm.wire.text import clean_text

TIMEOUT_S = 10.0
PROBLEM = "application/problem+json"
LONGEST_SENTENCE = 400


def is_address(text: str) -> bool:
    url = urlsplit(text)
    return url.scheme in ("http", "https") and bool(url.netloc)


class Refused(RemoteError):
    """The site answered, and says in a sentence why it tells nothing. `status` is HTTP's."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def read_models(site: str) -> list[dict[str, Any]]:
    """The models of the site's first swarm, worst first. Raises as `read_json`."""
    items: list[dict[str, Any]] = read_document(site)["items"]
    return items


def read_document(site: str) -> dict[str, Any]:
    """`GET /api/v1/models`, its models under `items`. Raises as `read_json`."""
    return read_list(site, "/models")


def read_list(site: str, path: str, **query: object) -> dict[str, Any]:
    """A document with a list of objects under `items`. Raises as `read_json`."""
    document = read_json(site, path, **query)
    items = document.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RemoteError(f"{site} does not answer as a Sepal site (no list under {path})")
    return document


def read_json(site: str, path: str, **query: object) -> dict[str, Any]:
    """`GET /api/v1` + path; what is None is not asked. Refused where the site says why not; RemoteError where nobody answers
    there as a Sepal site."""
    asked = {name: str(value) for name, value in query.items() if value is not None}
    try:
        response = httpx.get(f"{site.rstrip('/')}/api/v1{path}", params=asked, timeout=TIMEOUT_S)
        refusal = _refusal(response)
        if refusal is None:
            response.raise_for_status()
        document = response.json() if refusal is None else {}
        if not isinstance(document, dict):
            raise ValueError("no object")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise RemoteError(f"{site} does not answer as a Sepal site ({type(error).__name__})") from error
    if refusal is not None:
        raise Refused(response.status_code, refusal)
    return document


def _refusal(response: httpx.Response) -> str | None:
    if response.is_success or not response.headers.get("content-type", "").startswith(PROBLEM):
        return None
    said = response.json()
    return clean_text(said.get("detail"), LONGEST_SENTENCE) if isinstance(said, dict) else None
