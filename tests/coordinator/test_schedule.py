"""What the clock asks for exists, and runs where it should."""

from __future__ import annotations

import pytest
from django.conf import settings

from coordinator.celery import app
from coordinator.launch.commands import crawl


def test_every_task_of_the_schedule_is_one_that_the_workers_know() -> None:
    app.loader.import_default_modules()
    asked = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert asked <= app.tasks.keys()
    assert asked >= {"monitor.alerts.tasks.deliver", "monitor.alerts.tasks.forget", "monitor.exports.tasks.export"}


def test_no_swarm_waits_for_the_silence_of_another() -> None:
    asked = [entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()]
    slow = asked.count("monitor.tasks.crawl") + asked.count("monitor.tasks.measure")
    assert slow >= 2 and app.conf.worker_concurrency > slow, "and a visitor's dial does not wait for crawls either"
    assert "--concurrency" not in crawl("python"), "which would come before the setting"


@pytest.mark.parametrize("name", ["monitor.alerts.tasks.deliver", "monitor.tasks.push"])
def test_tasks_that_are_asked_for_by_name_exist(name: str) -> None:
    app.loader.import_default_modules()
    assert name in app.tasks
