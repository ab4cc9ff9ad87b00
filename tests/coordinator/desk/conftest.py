from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _quick_hashes(settings: Any) -> None:
    """What makes passwords hard to guess is slow on purpose, and not what is tested here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
