"""A real site (the web process on a free port, on the test's own database) and a real Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from weakref import WeakSet

import pytest
from django.db import OperationalError
from django.db.backends.postgresql.operations import DatabaseOperations
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.sites import running_site

# Each wait ends with its event; on a busy machine that may take longer than Playwright's 5 s, and its 30 s for whole pages.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def site(django_db_setup: None) -> Iterator[str]:
    """Its address."""
    with running_site() as (address, _):
        yield address


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


caught_up: WeakSet[Page] = WeakSet()
"""Pages that have asked, once their sockets were open, what has changed since they were loaded, and were answered."""


left: WeakSet[Page] = WeakSet()


def leave(*pages: Page) -> None:
    """Before their site stops. A page that is still connecting complains when it is closed, rightly."""
    left.update(pages)
    for page in pages:
        page.context.close()


@pytest.fixture
def open_page(browser: Browser, site: str, transactional_db: None) -> Iterator[Callable[..., Page]]:
    """Opens a path of the site. What the console says and what is asked of other hosts fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(path: str, prepare: Callable[[Page], object] = lambda page: None, base: str = site, **options: object) -> Page:
        context = browser.new_context(base_url=base, **options)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("response", lambda answer: caught_up.add(page) if "fragment=all" in answer.url else None)
        page.on("console", lambda said: complaints.append(said.text) if is_wrong(said) and page not in left else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith((base, "ws:", "data:")) else None)
        prepare(page)
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        leave(*context.pages)
    assert complaints == []
