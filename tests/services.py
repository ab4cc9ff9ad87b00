"""A pytest plugin: real Postgres and a real Redis-protocol server for the whole run, before Django reads its settings.

`DATABASE_URL` and `REDIS_URL` in the environment are used where they are given.
"""

from __future__ import annotations

import contextlib
import os

import pytest

from coordinator.launch.services import running

_stack = contextlib.ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    os.environ["DATABASE_URL"], os.environ["REDIS_URL"] = _stack.enter_context(running())


def pytest_unconfigure() -> None:
    _stack.close()
