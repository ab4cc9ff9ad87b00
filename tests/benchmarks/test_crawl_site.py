"""The whole round that the figure is about really happens: read, dialled, judged and stored."""

from __future__ import annotations

import pytest

from benchmarks.crawl_site import measure


@pytest.mark.slow
def test_a_whole_round_stores_every_server_that_is_announced() -> None:
    result = measure(servers=6, models=2, blocks=8, nodes=3, rounds=2)
    assert (result["servers_stored"], result["servers_announced"], result["keys_unread"]) == (6, 6, 0)
    assert result["outcome"] == "succeeded" and len(result["seconds"]) == len(result["store_s"]) == 2
    assert 0 < result["idle_mb"] <= result["peak_mb"] and result["p2pd_peak_mb"] > 0
