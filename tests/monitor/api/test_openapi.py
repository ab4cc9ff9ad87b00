"""The OpenAPI document: valid, true to the code, true to itself, and never less than it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from openapi_spec_validator import validate

from coordinator.api import api
from coordinator.management.commands import openapi as command
from monitor.api.contract import breaking
from monitor.api.openapi import _STATUSES
from monitor.api.problems import CATALOGUE
from tests.monitor.api.conftest import reads

WRITTEN = json.loads(command.PATH.read_text())


def generated() -> Any:
    return json.loads(command.text_of(api.get_openapi_schema()))


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_nothing_that_programs_rely_on_is_taken_away() -> None:
    broken = breaking(WRITTEN, generated())
    assert broken == [], "this breaks programs that rely on v1:\n" + "\n".join(broken)


def test_the_file_is_what_the_code_says() -> None:
    assert generated() == WRITTEN, "run `python manage.py openapi`"


def test_the_document_is_served_and_valid(client: Client, db: None) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1.") and document == WRITTEN
    validate(document)


def test_each_operation_says_how_it_may_fail_and_has_a_name_of_its_own() -> None:
    names = []
    for path, method, operation in operations(WRITTEN):
        names.append(operation["operationId"])
        assert operation["summary"], path
        for status in ("404", "405", "422", "429", "500", "503"):
            assert "application/problem+json" in operation["responses"][status]["content"], (path, status)
        assert ("304" in operation["responses"]) is (method == "get")
    assert len(set(names)) == len(names)
    assert {str(kind.status) for kind in CATALOGUE} == set(_STATUSES)


def fields() -> Iterator[tuple[str, Any]]:
    for name, schema in WRITTEN["components"]["schemas"].items():
        for field, part in schema.get("properties", {}).items():
            yield f"{name}.{field}", part


def test_each_answer_is_typed_and_its_example_validates() -> None:
    for path, method, operation in operations(WRITTEN):
        for status, answer in operation["responses"].items():
            for media, content in answer.get("content", {}).items():
                schema = {**content["schema"], "components": WRITTEN["components"]}
                jsonschema.validate(content["example"], schema, jsonschema.Draft202012Validator)
                assert content["example"] not in (None, {}), (path, method, status, media)


def test_parameters_say_what_they_are_for() -> None:
    for path, _, operation in operations(WRITTEN):
        for parameter in operation["parameters"]:
            told = parameter.get("description") or parameter["schema"].get("description")
            assert told or parameter["in"] == "path" or parameter["name"] in ("precision", "swarm"), (path, parameter["name"])


def test_every_read_is_what_its_schema_says(client: Client, site: None) -> None:
    """Those that are answered without being checked on the way out, too."""
    templates = {path: operation for path, method, operation in operations(WRITTEN) if method == "get"}
    for path in reads():
        if path.endswith("openapi.json"):
            continue
        plain = path.partition("?")[0]
        template = next(known for known in sorted(templates, key=lambda t: t.count("{")) if fits(known, plain))
        schema = templates[template]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(client.get(path).json(), {**schema, "components": WRITTEN["components"]})


def fits(template: str, path: str) -> bool:
    parts, given = template.split("/"), path.split("/")
    return len(parts) == len(given) and all(p == g or p.startswith("{") for p, g in zip(parts, given, strict=True))


def test_the_command_refuses_to_break_what_there_is(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    promised = json.loads(json.dumps(WRITTEN))
    promised["paths"]["/api/v1/more"] = promised["paths"]["/api/v1/swarms"]
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(promised))
    monkeypatch.setattr(command, "PATH", path)
    with pytest.raises(CommandError, match="GET /api/v1/more is gone"):
        call_command("openapi")
    assert json.loads(path.read_text()) == promised
    call_command("openapi", break_it=True)
    assert json.loads(path.read_text()) == WRITTEN
    call_command("openapi", check=True)


def test_the_command_checks_without_writing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    less = json.loads(json.dumps(WRITTEN))
    del less["paths"]["/api/v1/swarms"]
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(less))
    monkeypatch.setattr(command, "PATH", path)
    with pytest.raises(CommandError, match=r"run `python manage\.py openapi`"):
        call_command("openapi", check=True)
    assert json.loads(path.read_text()) == less
