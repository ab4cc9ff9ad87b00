"""What the clock asks for exists, and runs where it should."""

from __future__ import annotations

import pytest
from django.conf import settings

from coordinator.celery import app


def test_every_task_of_the_schedule_is_one_that_the_workers_know() -> None:
    app.loader.import_default_modules()
    asked = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert asked <= app.tasks.keys()
    assert asked >= {"monitor.alerts.tasks.deliver", "monitor.alerts.tasks.forget", "monitor.exports.tasks.export"}


@pytest.mark.parametrize("name", ["monitor.alerts.tasks.deliver", "monitor.tasks.push"])
def test_tasks_that_are_asked_for_by_name_exist(name: str) -> None:
    app.loader.import_default_modules()
    assert name in app.tasks
