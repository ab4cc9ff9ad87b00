"""The command line: parses, calls, and turns errors into a sentence and an exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from coordinator.launch.child import LAST_LINES
from coordinator.launch.commands import SiteEnvironment
from coordinator.launch.demo import DEFAULT_BLOCKS, DEFAULT_CRAWL_INTERVAL_S, DEFAULT_MODEL, DEFAULT_SERVERS, Plan, run_demo
from coordinator.launch.kill import kill_one
from coordinator.launch.ports import LOOPBACK, site_port
from coordinator.launch.run_folder import DEFAULT_RUN_DIR, RunFolder, kept_secret, locked
from coordinator.launch.services import start_services
from coordinator.launch.site import start_site
from coordinator.launch.staff import make_staff
from coordinator.launch.supervisor import ChildFailed, StopRequested, Supervisor, supervising
from coordinator.launch.terminal import complain, say
from swarm.errors import SwarmError


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if sys.platform != "linux":
        complain("The launcher needs Linux.")
        return 1
    try:
        options.action(options)
    except StopRequested:
        say("Stopped.")
    except ChildFailed as failure:
        complain(f"The last {LAST_LINES} lines of {failure.log}:")
        for line in failure.last_lines or ["(the log is empty)"]:
            complain(f"  {line}")
        complain(str(failure))
        return 1
    except SwarmError as error:
        complain(str(error))
        return 1
    return 0


def _demo(options: argparse.Namespace) -> None:
    plan = Plan(
        model=options.model.absolute(),
        port=options.port,
        servers=options.servers,
        blocks=options.blocks,
        bootstraps=options.bootstraps,
        crawl_interval_s=options.crawl_interval or DEFAULT_CRAWL_INTERVAL_S,
    )
    _under_supervision(options, lambda supervisor, folder: run_demo(supervisor, folder, plan, os.environ))


def _site(options: argparse.Namespace) -> None:
    def run(supervisor: Supervisor, folder: RunFolder) -> None:
        port = site_port(options.port)
        if not os.environ.get("SEPAL_INITIAL_PEERS"):
            say("SEPAL_INITIAL_PEERS is not set: the site starts, but has no swarm to watch.")
        urls = start_services(supervisor, folder, os.environ)
        settings = SiteEnvironment(
            database_url=urls.database,
            redis_url=urls.redis,
            secret_key=kept_secret(folder.path / "secret-key"),
            url=f"http://{LOOPBACK}:{port}",
            swarm="main",
            initial_peers="",
            crawl_interval_s=options.crawl_interval or 30.0,
        )
        # What the operator has set wins over our defaults.
        given = {name: value for name, value in os.environ.items() if value}
        start_site(supervisor, folder, {"PYTHONUNBUFFERED": "1", **settings.variables(), **given}, port)
        supervisor.stay()

    _under_supervision(options, run)


def _services(options: argparse.Namespace) -> None:
    def run(supervisor: Supervisor, folder: RunFolder) -> None:
        urls = start_services(supervisor, folder, os.environ)
        say(f"DATABASE_URL={urls.database}")
        say(f"REDIS_URL={urls.redis}")
        supervisor.stay()

    _under_supervision(options, run)


def _kill(options: argparse.Namespace) -> None:
    kill_one(options.run_dir, options.number)


def _staff(options: argparse.Namespace) -> None:
    make_staff(options.run_dir, options.name, made_up=options.made_up)


def _under_supervision(options: argparse.Namespace, run: Callable[[Supervisor, RunFolder], None]) -> None:
    # Root may run with a umask that locks out the user that Postgres runs as; secrets set their own mode.
    os.umask(0o022)
    with locked(options.run_dir) as folder, supervising(folder, sole_purpose=True) as supervisor:
        run(supervisor, folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m coordinator.launch", description="Start Sepal on this machine.")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--run-dir", type=Path, default=DEFAULT_RUN_DIR, help="data, logs and state (default: %(default)s)")
    web = argparse.ArgumentParser(add_help=False)
    web.add_argument("--port", type=int, help="of the site on 127.0.0.1 (default: 8000, or a free one if that is taken)")
    web.add_argument("--crawl-interval", type=_seconds, help="seconds between crawls (default: 30, in the demo 10)")

    demo = actions.add_parser("demo", parents=[shared, web], help="a site with a swarm of its own, narrated")
    demo.add_argument("--bootstraps", type=_positive, default=1, help="bootstrap peers (default: %(default)s)")
    demo.add_argument("--servers", type=_positive, default=DEFAULT_SERVERS, help="block servers (default: %(default)s)")
    demo.add_argument("--blocks", type=_positive, default=DEFAULT_BLOCKS, help="blocks per server (default: %(default)s)")
    demo.add_argument("--model", type=Path, default=DEFAULT_MODEL, metavar="FOLDER", help="(default: %(default)s)")
    demo.set_defaults(action=_demo)
    site = actions.add_parser("site", parents=[shared, web], help="a site for the swarm of SEPAL_INITIAL_PEERS")
    site.set_defaults(action=_site)
    services = actions.add_parser("services", parents=[shared], help="only Postgres and Valkey; prints their URLs")
    services.set_defaults(action=_services)
    kill = actions.add_parser("kill", parents=[shared], help="kill -9 one block server of the running demo")
    kill.add_argument("number", type=_positive, nargs="?", help="server-N (default: the one whose loss opens a gap)")
    kill.set_defaults(action=_kill)
    staff = actions.add_parser("staff", parents=[shared], help="a log-in for the admin of the running site")
    staff.add_argument("name", help="what the person logs in with")
    staff.add_argument("--made-up", action="store_true", help="do not ask for a password: make one up and print it, once")
    staff.set_defaults(action=_staff)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 1 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 1 up")
    return number
