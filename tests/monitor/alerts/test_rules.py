"""Alarms begin, grow and end once each; what was not seen changes nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from monitor.alerts.rules import Alarm, Finding, News, advance


def told(*looks: tuple[bool | None, int], steady: bool = False) -> list[News | None]:
    """Looks one second apart, each with its level."""
    alarm: Alarm | None = None
    said = []
    for at, (bad, level) in enumerate(looks):
        alarm, news = advance(alarm, Finding(bad, float(at), level=level), steady=steady)
        said.append(news)
    return said


BAD, GOOD, BLIND = (True, 1), (False, 1), (None, 1)


def test_bad_and_good_are_believed_at_the_second_look() -> None:
    assert told(BAD, BAD, BAD, GOOD, GOOD, GOOD) == [None, News.FIRED, None, None, News.RECOVERED, None]


def test_one_bad_look_is_nothing() -> None:
    assert told(BAD, GOOD, BAD, GOOD) == [None] * 4


def test_one_good_look_in_between_ends_nothing() -> None:
    assert told(BAD, BAD, GOOD, BAD, GOOD, GOOD) == [None, News.FIRED, None, None, None, News.RECOVERED]


def test_blindness_neither_begins_nor_ends_an_alarm() -> None:
    assert told(BLIND, BLIND, BLIND) == [None] * 3
    assert told(BAD, BAD, BLIND, BLIND, BAD) == [None, News.FIRED, None, None, None]


def test_what_is_confirmed_elsewhere_is_told_at_once() -> None:
    assert told(BAD, BAD, GOOD, steady=True) == [News.FIRED, None, News.RECOVERED]


def test_the_same_look_twice_is_not_a_second_look() -> None:
    alarm, _ = advance(None, Finding(True, 5.0), steady=False)
    assert advance(alarm, Finding(True, 5.0), steady=False)[1] is None


def test_worse_is_told_once_more_and_better_but_not_good_is_not() -> None:
    assert told(BAD, BAD, (True, 2), (True, 2), BAD, (True, 2)) == [None, News.FIRED, News.WORSE, None, None, None]


looks = st.lists(st.tuples(st.sampled_from([True, False, None]), st.sampled_from([1, 2])), max_size=40)


@given(looks, st.booleans())
def test_whatever_happens_news_alternate_and_nothing_unseen_is_told(seen: list[tuple[bool | None, int]], steady: bool) -> None:
    said = told(*seen, steady=steady)
    story = [news for news in said if news is not None]
    is_open, was_worse = False, False
    for news in story:
        assert (news is News.FIRED) == (not is_open)
        assert not (news is News.WORSE and was_worse)
        is_open, was_worse = news is not News.RECOVERED, news is News.WORSE or (was_worse and news is not News.RECOVERED)
    for (bad, _), news in zip(seen, said, strict=True):
        assert news is None or bad is (news is not News.RECOVERED), "bad news come with a bad look, good news with a good one"


@given(looks, st.booleans())
def test_blind_looks_in_between_change_nothing_that_is_told(seen: list[tuple[bool | None, int]], steady: bool) -> None:
    sighted = [look for look in seen if look[0] is not None]
    assert [n for n in told(*seen, steady=steady) if n] == [n for n in told(*sighted, steady=steady) if n]
