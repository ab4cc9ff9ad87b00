"""Which swarms a site watches: said in one place, and a fault in it named when the site starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from coordinator.swarms import read

SHORT = {"name": "main", "initial_peers": ["/ip4/10.0.0.1/tcp/1/p2p/Qm"], "relay": False}
TWO = [
    {"name": "one", "label": "Our swarm", "initial_peers": ["/ip4/10.0.0.1/tcp/1/p2p/Qm"], "relay": True},
    {"name": "two", "initial_peers": [], "models": ["_private", "Llama-hf"]},
]
FOR_PEOPLE = {"join_addresses": [], "gateway": ""}
READ = [
    {
        "name": "one",
        "label": "Our swarm",
        "initial_peers": ["/ip4/10.0.0.1/tcp/1/p2p/Qm"],
        "relay": True,
        "models": [],
        **FOR_PEOPLE,
    },
    {"name": "two", "label": "two", "initial_peers": [], "relay": False, "models": ["_private", "Llama-hf"], **FOR_PEOPLE},
]


def test_without_the_variable_there_is_the_one_swarm_of_the_short_settings() -> None:
    assert read("", SHORT) == [{**SHORT, "label": "main", "models": [], **FOR_PEOPLE}]


def test_several_swarms_come_from_the_variable_or_from_a_file(tmp_path: Path) -> None:
    as_json, as_toml = tmp_path / "swarms.json", tmp_path / "swarms.toml"
    as_json.write_text(json.dumps({"swarms": TWO}))
    as_toml.write_text(
        '[[swarms]]\nname = "one"\nlabel = "Our swarm"\ninitial_peers = ["/ip4/10.0.0.1/tcp/1/p2p/Qm"]\nrelay = true\n'
        '[[swarms]]\nname = "two"\ninitial_peers = []\nmodels = ["_private", "Llama-hf"]\n'
    )
    assert read(json.dumps(TWO), SHORT) == read(str(as_json), SHORT) == read(str(as_toml), SHORT) == READ


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("[]", "at least one swarm"),
        ("[{]", "cannot be read"),
        ("/no/such/file.json", "/no/such/file.json, which cannot be read: No such file"),
        ([{"label": "x"}], "swarm 1: the name '' must be of letters"),
        ([{"name": "a b"}], "'a b' must be of letters"),
        ([{"name": "a"}, {"name": "a"}], "a name of its own"),
        ([{"name": "a", "peers": []}], "swarm 1: 'peers' is none of name, label"),
        ([{"name": "a", "initial_peers": "/ip4/…"}], "initial_peers is '/ip4/…', not a list of texts"),
        ([{"name": "a", "initial_peers": [1]}], "not a list of texts"),
        ([{"name": "a", "relay": "yes"}], "relay is 'yes', not a bool"),
        ([{"name": "a", "models": ["with.dot"]}], "'with.dot' is no model prefix"),
        (["main"], "swarm 1: a table with name"),
    ],
)
def test_a_fault_is_named(given: Any, fault: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=fault):
        read(given if isinstance(given, str) else json.dumps(given), SHORT)
