"""A model hub on loopback, as much of one as fetching needs: files by commit, gates, tokens, ranges, and broken connections."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c0ffee" + "0" * 34
TOKEN = "hf_good"


@dataclass
class FakeHub:
    """Serves `folders` (repository -> folder). `cut_after` breaks off every download after so many bytes."""

    folders: dict[str, Path] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    storage: str | None = None
    """Address that large files are redirected to, as a hub does."""

    cut_after: int | None = None
    dies: bool = False
    """After the first cut nothing more comes."""

    spoiled: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    """Method, path, Authorization, Range."""

    url: str = ""

    def downloads(self) -> list[str]:
        return [path.rpartition("/")[2] for method, path, *_ in self.requests if method == "GET"]


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        hub, authorization = self.hub, self.headers.get("Authorization")
        hub.requests.append((self.command, self.path, authorization, self.headers.get("Range")))
        repository, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repository not in hub.folders:
            return self._refuse(404, "RepoNotFound")
        if repository in hub.gated and authorization != f"Bearer {TOKEN}":
            return self._refuse(401 if authorization is None else 403, "GatedRepo")
        if revision not in ("main", COMMIT):
            return self._refuse(404, "RevisionNotFound")
        file = hub.folders[repository] / name
        if not file.is_file():
            return self._refuse(404, "EntryNotFound")
        return self._send(file, with_body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, file: Path, with_body: bool) -> None:
        content, large = file.read_bytes(), file.suffix == ".safetensors"
        etag = hashlib.sha256(content).hexdigest() if large else hashlib.sha1(content).hexdigest()
        if file.name in self.hub.spoiled:
            content = bytes(len(content))
        if large and self.hub.storage and not with_body:
            self.send_response(302)
            self.send_header("Location", f"{self.hub.storage}{self.path}")
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("X-Linked-Etag", f'"{etag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            cut = self.hub.cut_after if large else None
            self.wfile.write(content[start:] if cut is None else content[start : start + cut])
            if cut is not None and start + cut < len(content):
                self.close_connection = True
                self.hub.cut_after = 0 if self.hub.dies else cut
