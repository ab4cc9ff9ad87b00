"""A real site (daphne on a free port, on the test's own database) and a real Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import OperationalError, connection
from django.db.backends.postgresql.operations import DatabaseOperations
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]

# Each wait ends with its event; on a busy machine that may take longer than Playwright's 5 s.
expect.set_options(timeout=20_000)


def _database_url() -> str:
    given = connection.settings_dict
    user = quote(f"{given['USER']}:{given['PASSWORD']}" if given["PASSWORD"] else given["USER"], safe=":")
    return f"postgres://{user}@{given['HOST']}:{given['PORT']}/{quote(given['NAME'])}"


@pytest.fixture(scope="session")
def site(django_db_setup: None) -> Iterator[str]:
    """Its address."""
    with running_site() as (address, _):
        yield address


@contextmanager
def running_site(**more: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(address, what differs in its environment). The line that daphne prints when it listens is what this waits for."""
    own = {"DATABASE_URL": _database_url(), "SEPAL_CRAWL_INTERVAL_S": "30", "PYTHONUNBUFFERED": "1", **more}
    env = {**os.environ, **own}
    command = [sys.executable, "-m", "daphne", "-e", "tcp:port=0:interface=127.0.0.1", "coordinator.asgi:application"]
    with subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield f"http://127.0.0.1:{_listening_port(process)}", own
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()  # Where its Redis is gone, daphne sometimes never finishes its farewells.


def _listening_port(process: subprocess.Popen[str]) -> int:
    """What daphne says afterwards is read and passed on: a full pipe would stop it."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if "Listening on TCP address" in line:
            threading.Thread(target=sys.stderr.writelines, args=(process.stderr,), daemon=True).start()
            return int(line.rsplit(":", 1)[1])
    raise AssertionError("daphne did not start:\n" + "".join(said))


@pytest.fixture(scope="session", autouse=True)
def patient_flush() -> Iterator[None]:
    """After each test its tables are truncated, which deadlocks with a request that a closing page has just sent. Postgres
    ends one of the two; where it is ours, the next try finds the request answered."""
    plain = DatabaseOperations.execute_sql_flush

    def patient(self: DatabaseOperations, sql_list: list[str]) -> None:
        for left in (4, 3, 2, 1, 0):
            try:
                return plain(self, sql_list)
            except OperationalError as error:
                if not left or "deadlock" not in str(error):
                    raise
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "execute_sql_flush", patient)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its module: until then Playwright's event loop occupies this thread, in which other tests run theirs."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    assert executable, "Debian's chromium is needed: apt-get install chromium"
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Beside that loop Django would refuse database calls, though nothing here is async.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        started = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield started
        started.close()


def is_wrong(said: ConsoleMessage) -> bool:
    """A page that is not there is answered 404, which the console notes."""
    return said.type in ("error", "warning") and "status of 404" not in said.text


@pytest.fixture
def open_page(browser: Browser, site: str, transactional_db: None) -> Iterator[Callable[..., Page]]:
    """Opens a path of the site. What the console says and what is asked of other hosts fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(path: str, prepare: Callable[[Page], object] = lambda page: None, base: str = site, **options: object) -> Page:
        context = browser.new_context(base_url=base, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if is_wrong(said) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith((base, "ws:", "data:")) else None)
        prepare(page)
        page.goto(path)
        return page

    yield opened
    # Closing a page that is still connecting makes it complain, rightly.
    while_open = list(complaints)
    for context in contexts:
        context.close()
    assert while_open == []
