"""What counts as breaking: less is taken than before, or less is promised. Everything else is only more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from monitor.api.contract import breaking

OLD: dict[str, Any] = {
    "paths": {
        "/things": {
            "get": {
                "parameters": [
                    {"in": "query", "name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 500}},
                    {"in": "query", "name": "kind", "schema": {"enum": ["a", "b"], "type": "string"}},
                    {"in": "query", "name": "name", "schema": {"type": "string", "maxLength": 64}},
                ],
                "responses": {
                    "200": {
                        "headers": {"ETag": {}},
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Things"}}},
                    },
                    "404": {"content": {"application/problem+json": {"schema": {"type": "object"}}}},
                },
            },
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
                "responses": {"200": {}},
            },
        }
    },
    "components": {
        "schemas": {
            "Things": {
                "type": "object",
                "required": ["items", "count"],
                "properties": {
                    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                    "count": {"type": "integer", "minimum": 0},
                },
            },
            "Thing": {
                "type": "object",
                "required": ["name", "state"],
                "properties": {
                    "name": {"type": "string"},
                    "state": {"enum": ["up", "down"], "type": "string"},
                    "rate": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    "inner": {"anyOf": [{"$ref": "#/components/schemas/Thing"}, {"type": "null"}]},
                },
            },
            "New": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            },
        }
    },
}  # fmt: skip

Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]


def changed(change: Change) -> list[str]:
    new = copy.deepcopy(OLD)
    change(new["paths"]["/things"]["get"], new["paths"]["/things"], new["components"]["schemas"])
    return breaking(OLD, new)


def parameter(get: dict[str, Any], name: str) -> dict[str, Any]:
    return next(p for p in get["parameters"] if p["name"] == name)


BREAKS: dict[str, Change] = {
    "POST /things is gone": lambda get, path, schemas: path.pop("post"),
    "'limit' is gone": lambda get, path, schemas: get["parameters"].pop(0),
    "'limit' must now be given": lambda get, path, schemas: get["parameters"][0].update(required=True),
    "'more' is new and must be given": lambda get, path, schemas: get["parameters"].append(
        {"in": "query", "name": "more", "required": True}
    ),
    "maximum was 500 and is 100": lambda get, path, schemas: parameter(get, "limit")["schema"].update(maximum=100),
    "minimum was 1 and is 5": lambda get, path, schemas: parameter(get, "limit")["schema"].update(minimum=5),
    "no longer takes integer": lambda get, path, schemas: parameter(get, "limit")["schema"].update(type="string"),
    "no longer takes 'b'": lambda get, path, schemas: parameter(get, "kind")["schema"].update(enum=["a"]),
    "no longer takes anything but": lambda get, path, schemas: parameter(get, "name")["schema"].update(enum=["x"]),
    "maxLength was 64 and is 10": lambda get, path, schemas: parameter(get, "name")["schema"].update(maxLength=10),
    "pattern was None and is ^x$": lambda get, path, schemas: parameter(get, "name")["schema"].update(pattern="^x$"),
    "the answer 404 is gone": lambda get, path, schemas: get["responses"].pop("404"),
    "no longer comes as application/json": lambda get, path, schemas: get["responses"]["200"].update(content={"text/csv": {}}),
    "no longer has the header ETag": lambda get, path, schemas: get["responses"]["200"].update(headers={}),
    "answer 200.count is gone": lambda get, path, schemas: schemas["Things"]["properties"].pop("count"),
    "answer 200.count may now be left out": lambda get, path, schemas: schemas["Things"].update(required=["items"]),
    "answer 200.count may now be number": lambda get, path, schemas: schemas["Things"]["properties"]["count"].update(
        type="number"
    ),
    "answer 200.count: minimum was 0 and is None": lambda get, path, schemas: schemas["Things"]["properties"]["count"].pop(
        "minimum"
    ),
    "answer 200.items[].name may now be null": lambda get, path, schemas: schemas["Thing"]["properties"].update(
        name={"anyOf": [{"type": "string"}, {"type": "null"}]}
    ),
    "answer 200.items[].state may now be any word": lambda get, path, schemas: schemas["Thing"]["properties"].update(
        state={"type": "string"}
    ),
    "answer 200.items[].rate is gone": lambda get, path, schemas: schemas["Thing"]["properties"].pop("rate"),
    "body.size must now be given": lambda get, path, schemas: schemas["New"].update(required=["name", "size"]),
    "body.size no longer takes null": lambda get, path, schemas: schemas["New"]["properties"].update(size={"type": "integer"}),
    "body.size is gone": lambda get, path, schemas: schemas["New"]["properties"].pop("size"),
    "a body must now be sent": lambda get, path, schemas: path["post"]["requestBody"].update(required=True),
    "a body of application/json is no longer taken": lambda get, path, schemas: path["post"].pop("requestBody"),
}

IS_FINE: dict[str, Change] = {
    "another operation": lambda get, path, schemas: path.update(delete=copy.deepcopy(get)),
    "another parameter": lambda get, path, schemas: get["parameters"].append({"in": "query", "name": "more"}),
    "a wider range": lambda get, path, schemas: parameter(get, "limit")["schema"].update(maximum=1000, minimum=0),
    "another word taken": lambda get, path, schemas: parameter(get, "kind")["schema"].update(enum=["a", "b", "c"]),
    "a number where an integer was taken": lambda get, path, schemas: parameter(get, "limit")["schema"].update(type="number"),
    "another answer": lambda get, path, schemas: get["responses"].update({"410": {}}),
    "another field": lambda get, path, schemas: schemas["Thing"]["properties"].update(more={"type": "string"}),
    "another word told": lambda get, path, schemas: schemas["Thing"]["properties"]["state"].update(enum=["up", "down", "gone"]),
    "an optional field becomes certain": lambda get, path, schemas: schemas["Thing"].update(required=["name", "state", "rate"]),
    "a promise becomes narrower": lambda get, path, schemas: schemas["Thing"]["properties"].update(rate={"type": "integer"}),
    "another field taken": lambda get, path, schemas: schemas["New"]["properties"].update(more={"type": "string"}),
    "other words for people": lambda get, path, schemas: get.update(summary="Things", description="All of them"),
}


@pytest.mark.parametrize("told", BREAKS)
def test_this_breaks_somebody(told: str) -> None:
    assert any(told in sentence for sentence in changed(BREAKS[told])), changed(BREAKS[told])


@pytest.mark.parametrize("name", IS_FINE)
def test_this_is_only_more(name: str) -> None:
    assert changed(IS_FINE[name]) == []


def test_nothing_changed_breaks_nothing_and_a_schema_that_holds_itself_ends() -> None:
    assert breaking(OLD, OLD) == []
