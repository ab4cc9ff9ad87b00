"""Pages, styles and scripts as gzip: whoever runs the site without a proxy in front serves light pages too.

Leaves everything else alone: streams must not be held back, and the API's entity tags stand for the bytes as they are.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from typing import cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.utils.cache import patch_vary_headers
from django.utils.text import compress_string

from monitor.kept import kept

TYPES = ("text/html", "text/css", "text/javascript", "application/javascript", "image/svg+xml")
WORTH_IT = 1_000
"""Bytes: below, one packet carries it anyway."""
STATIC_KEPT_S = 3_600.0


class CompressPages:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not _to_be_compressed(request, response):
            return response
        # A page also differs by its theme, which a cookie keeps.
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        patch_vary_headers(response, ("Accept-Encoding", "Cookie") if is_page else ("Accept-Encoding",))
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return response
        return _file(request, response) if isinstance(response, StreamingHttpResponse) else _page(cast(HttpResponse, response))


def _to_be_compressed(request: HttpRequest, response: HttpResponseBase) -> bool:
    if response.status_code != 200 and not 400 <= response.status_code < 500:
        return False
    if response.has_header("Content-Encoding") or request.method == "HEAD" or request.path.startswith("/api/"):
        return False
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    if response.streaming:
        return _is_static(request) and kind in TYPES
    return kind in TYPES or (kind == "application/json" and "fragment" in request.GET)


def _is_static(request: HttpRequest) -> bool:
    return request.path.startswith(f"/{settings.STATIC_URL.lstrip('/')}")


def _page(response: HttpResponse) -> HttpResponse:
    """Django adds bytes by chance, so that the length tells nothing about what a page says."""
    if len(response.content) >= WORTH_IT:
        response.content = compress_string(response.content, max_random_bytes=100)
        response.headers["Content-Length"] = str(len(response.content))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _file(request: HttpRequest, response: StreamingHttpResponse) -> HttpResponseBase:
    """A style or script: the same for everybody, so it is compressed once."""
    key = ("static", request.path, response.headers.get("Last-Modified"), response.headers.get("Content-Length"))
    content = kept(
        key, lambda: gzip.compress(b"".join(cast(Iterable[bytes], response.streaming_content)), mtime=0), STATIC_KEPT_S
    )
    response.close()
    packed = HttpResponse(content, content_type=response.headers["Content-Type"])
    for name in ("Cache-Control", "Last-Modified", "Vary", "Access-Control-Allow-Origin"):
        if name in response.headers:
            packed.headers[name] = response.headers[name]
    packed.headers["Content-Encoding"] = "gzip"
    packed.headers["Content-Length"] = str(len(content))
    return packed
