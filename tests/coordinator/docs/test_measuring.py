"""How we measure: every word that pages use is explained, and every figure is the code's own."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.test import Client

from coordinator.docs import measures
from monitor import gate
from monitor.history.rules import THIN_FOR_S, Kind
from monitor.published import MISSED_INTERVALS, ago
from swarm.coverage import Verdict
from swarm.snapshot import PeerState
from tests.coordinator.docs.test_api_page import page_of


def test_every_verdict_every_state_and_every_incident_is_explained() -> None:
    assert set(measures.VERDICTS) == set(Verdict)
    assert set(measures.STATES) == set(PeerState)
    assert set(measures.INCIDENTS) == set(Kind)


@pytest.mark.django_db
def test_the_page_holds_all_of_it(client: Client) -> None:
    text = unescape(page_of(client, "/how-we-measure"))
    for word in (*measures.words(), *measures.states()):
        assert word.word in text and word.meaning in text, word
    for figure in measures.figures(30.0):
        assert figure.value in text and figure.why in text, figure
    assert all(words in text for words in measures.UNKNOWNS)


@pytest.mark.django_db
def test_thresholds_are_those_of_the_code(client: Client, settings: Any, monkeypatch: Any) -> None:
    settings.SEPAL_CRAWL_INTERVAL_S = 45.0
    monkeypatch.setattr(gate, "MASS_LOSS", 7)
    text = unescape(page_of(client, "/how-we-measure"))
    assert f"{MISSED_INTERVALS} missed checks ({ago(MISSED_INTERVALS * 45)})" in text and "7 servers or more" in text
    assert ago(THIN_FOR_S) in text
