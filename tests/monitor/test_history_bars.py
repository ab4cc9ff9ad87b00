"""Bars and words of the history: unknown is not zero, a hundred is never rounded up to, and today is not over."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from monitor.history import bars, rollups
from monitor.history.bars import HEIGHT, history, percent
from monitor.history.calendar import calendar
from monitor.history.minutes import moment
from monitor.history.models import Incident
from monitor.history.uptime import DayTally, Tally, model_days
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model

DAY = date(2026, 9, 1)


def days(*tallies: Tally) -> list[DayTally]:
    return [DayTally(DAY + timedelta(days=number), tally) for number, tally in enumerate(tallies)]


def test_the_colour_is_the_worst_level_of_the_day() -> None:
    shown = history(
        days(Tally(1440), Tally(1440, thin=1), Tally(1440, unknown=1, thin=9), Tally(1440, broken=1, thin=9), Tally())
    )
    assert [bar.level for bar in shown.bars] == ["n6", "n1", "unknown", "n0", "unwatched"]
    assert [bar.label for bar in shown.details] == [
        "could not run 1 min, one server on some block 9 min; watched 1 d",
        "unknown 1 min, one server on some block 9 min; watched 1 d",
        "one server on some block 1 min; watched 1 d",
    ]


def test_one_broken_minute_is_seen_and_a_day_without_sight_is_only_hatch() -> None:
    broken, blind, short = history(days(Tally(1440, broken=1), Tally(), Tally(720))).bars
    assert broken.cut >= 4 and broken.cut + broken.ran == HEIGHT
    assert (blind.ran, blind.cut, blind.unwatched) == (0, 0, HEIGHT)
    assert (short.ran, short.unwatched) == (HEIGHT // 2, HEIGHT // 2)


def test_the_part_of_today_that_is_still_to_come_is_not_unwatched() -> None:
    (today,) = history([DayTally(DAY, Tally(60), length=60)]).bars
    assert (today.ran, today.unwatched) == (HEIGHT, 0)


@given(st.integers(0, 1440), st.data())
def test_a_bar_never_leaves_its_box(watched: int, data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, watched))
    thin = data.draw(st.integers(0, watched - broken))
    length = data.draw(st.integers(max(1, watched), 1440))
    (bar,) = history([DayTally(DAY, Tally(watched, broken, thin), length)]).bars
    assert min(bar.ran, bar.cut, bar.unwatched) >= 0
    assert bar.ran_y + bar.ran <= HEIGHT + 4 and bar.cut_y + bar.cut <= HEIGHT
    assert (bar.cut > 0) == (broken > 0) or not watched


def test_a_hundred_percent_is_said_only_where_nothing_was_missing() -> None:
    assert percent(1.0) == "100 %"
    assert percent(0.999999) == "99.99 %" and percent(0.9995) == "99.95 %"
    assert percent(0.984) == "98.4 %" and percent(0.0) == "0.0 %"


def test_the_summary_says_how_much_was_watched_and_since_when() -> None:
    said = bars.summary(days(Tally(), Tally(720, broken=72), Tally(1440)))
    assert said == "96.7 % of the watched time it could run · watched 1 d 12 h of 2 d since 2 Sep"
    assert bars.summary(days(Tally(), Tally())) == "Not watched in these 2 days."
    assert bars.summary(days(Tally(10, unknown=10))) == "Not watched in these 1 days."


def test_the_calendar_counts_an_incident_on_each_day_that_it_touched() -> None:
    at = moment(NOW)
    long = Incident(kind="hole", started_before=at - timedelta(days=3), ended_before=at - timedelta(days=1))
    still = Incident(kind="thin", started_before=at - timedelta(days=1))
    shown = [day for month in calendar([long, still], NOW, 10) for day in month.days]
    assert [day.level for day in shown] == ["n2"] * 6 + ["n0", "n0", "n0", "n1"]
    assert shown[-2].label.endswith("1 gap, 1 one-server warning") and shown[0].label.endswith("no incident")


@pytest.mark.django_db
def test_the_model_page_and_the_overview_show_the_days(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(2, online("a", 0, 2), online("b", 0, 2)))
    rollups.roll_up(moment(NOW))
    monkeypatch.setattr("monitor.templatetags.history.time.time", lambda: NOW)
    for path in ("/m/tiny-hf", "/"):
        page = client.get(path).content.decode()
        assert '<svg class="days"' in page and "100 % of the watched time it could run" in page
    assert len(model_days(SWARM, NOW)["tiny-hf"]) == 90


@pytest.mark.django_db
def test_before_the_first_roll_up_the_page_says_so(client: Client) -> None:
    seed(model(2, online("a", 0, 2)))
    assert "No day has been counted yet" in client.get("/m/tiny-hf").content.decode()
