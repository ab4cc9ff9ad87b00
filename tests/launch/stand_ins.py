"""Small programs in the place of the site and of `sepal`, so that the launcher's own part can be tried in seconds.

`stand_ins.py launch ARGS...` is the launcher with its commands pointed here; the other words are what it then starts.
Each leaves a grandchild in a session of its own, and on SIGTERM says its name in the file `order`.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

NUM_BLOCKS = 24
SPANS = [(0, 12), (12, 24), (0, 12)]


def launch(words: list[str]) -> int:
    from coordinator.launch import cli, commands, swarm

    here = [sys.executable, os.path.abspath(__file__)]
    folder = words[words.index("--run-dir") + 1]

    def stand_in_web(python: str, host: str, port: int) -> list[str]:
        return [*here, "web", folder, str(port)]

    commands.web = stand_in_web
    commands.migrate = lambda python: [*here, "migrate"]
    commands.crawl = lambda python: [*here, "celery", folder, "crawl"]
    commands.worker = lambda python: [*here, "celery", folder, "worker"]
    commands.beat = lambda python, schedule, pid_file="": [*here, "celery", folder, "beat"]
    sepal = Path(folder) / "sepal"
    sepal.write_text(f'#!/bin/sh\nexec {here[0]} {here[1]} sepal {folder} "$@"\n')
    sepal.chmod(0o755)
    swarm.sepal_program = lambda: str(sepal)
    return cli.main(words)


def web(folder: Path, port: int) -> NoReturn:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(models(folder)).encode()
            self.send_response(200 if self.path in ("/livez", "/api/v1/models") else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    prepare(folder, "web")
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Page).serve_forever()
    raise AssertionError


def models(folder: Path) -> dict[str, Any]:
    """What a site would see: the servers whose processes live."""
    said = [json.loads(path.read_text()) for path in sorted((folder / "ready").glob("server-*.json"))]
    alive = [one for one in said if Path(f"/proc/{one['pid']}").exists()]
    held = {block for one in alive for block in range(*one["span"])}
    holes = [[12, 24]] if not held >= set(range(12, 24)) else []
    sentence = "cannot run: blocks 12–23 have no server" if holes else "runs"
    servers = [{"peer_id": o["peer_id"], "state": "online", "start": o["span"][0], "end": o["span"][1]} for o in alive]
    model = {"prefix": "smol", "num_blocks": NUM_BLOCKS, "verdict": "broken" if holes else "complete", "sentence": sentence}
    return {"items": [{**model, "holes": holes, "servers": servers, "leases": [], "stale": False}]}


def sepal(folder: Path, words: list[str]) -> None:
    ready = Path(words[words.index("--ready-file") + 1])
    said: dict[str, Any] = {"peer_id": f"QmPeerOf-{ready.stem}", "pid": os.getpid()}
    if words[0] == "bootstrap":
        said["addresses"] = ["/ip4/127.0.0.1/tcp/1234/p2p/QmBootstrap"]
    elif words[0] == "serve":
        if not Path(words[1]).is_dir():
            sys.exit(f"there is no model folder {words[1]}")
        said["span"] = SPANS[int(ready.stem.rpartition("-")[2]) - 1]
        print(f"INFO I chose {said['span']}", "\nDEBUG not for people", flush=True)
    prepare(folder, ready.stem)
    unfinished = ready.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(said))
    unfinished.replace(ready)
    wait_for_the_end()


def celery(folder: Path, name: str) -> None:
    prepare(folder, name)
    Path(os.environ["SEPAL_READY_FILE"]).write_text(str(os.getpid()))
    wait_for_the_end()


def prepare(folder: Path, name: str) -> None:
    subprocess.Popen(["setsid", "sleep", "600"])

    def leave(*_: object) -> None:
        with (folder / "order").open("a") as order:
            order.write(f"{name}\n")
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)


def wait_for_the_end() -> None:
    while True:
        signal.pause()


def main(words: list[str]) -> int:
    match words:
        case ["launch", *rest]:
            return launch(rest)
        case ["web", folder, port]:
            web(Path(folder), int(port))
        case ["sepal", folder, *rest]:
            sepal(Path(folder), rest)
        case ["celery", folder, name]:
            celery(Path(folder), name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
