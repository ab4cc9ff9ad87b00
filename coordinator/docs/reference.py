"""The OpenAPI document as a page shows it: groups of operations with their parameters and answers. Pure.

Knows the parts of OpenAPI 3.1 that this site's document uses; what it does not know is shown by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

Document = Mapping[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
DEEPEST = 2
"""Objects inside objects that are still listed; below that their name stands."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    required: bool
    words: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: str
    words: str
    kind: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    anchor: str
    method: str
    path: str
    summary: str
    words: str
    deprecated: bool
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    operations: tuple[Operation, ...]


def groups(document: Document) -> tuple[Group, ...]:
    """In the document's own order; an operation without a tag stands under “other”."""
    found: dict[str, list[Operation]] = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                operation = item[method]
                tag = (operation.get("tags") or ["other"])[0]
                found.setdefault(tag, []).append(_operation(document, path, method, operation, item.get("parameters", ())))
    return tuple(Group(name, tuple(operations)) for name, operations in found.items())


def _operation(document: Document, path: str, method: str, operation: Document, shared: Any) -> Operation:
    parameters = [_resolved(document, one) for one in (*shared, *operation.get("parameters", ()))]
    content = _part(_resolved(document, _part(operation, "requestBody")), "content")
    body = _part(_part(content, "application/json"), "schema")
    return Operation(
        anchor=f"{method}-{re.sub(r'[^a-z0-9]+', '-', path.lower()).strip('-')}",
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        words=operation.get("description", ""),
        deprecated=bool(operation.get("deprecated")),
        parameters=tuple(
            Field(
                f"{one['name']}{' (header)' if one['in'] == 'header' else ''}",
                kind_of(document, one.get("schema", {})),
                bool(one.get("required")),
                _words(document, {**one.get("schema", {}), **_described(one)}),
            )
            for one in parameters
            if one["in"] in ("path", "query", "header")
        ),
        body=tuple(_fields(document, body)),
        answers=tuple(_answer(document, status, one) for status, one in operation.get("responses", {}).items()),
    )


def _answer(document: Document, status: Any, given: Document) -> Answer:
    answer = _resolved(document, given)
    # Of several forms of one answer the first is the one that is meant for programs.
    media, content = next(iter(_part(answer, "content").items()), ("", {}))
    schema = _part(content, "schema")
    words = answer.get("description", "") or _phrase(str(status))
    kind = kind_of(document, schema) if schema else ""
    return Answer(
        str(status),
        words,
        f"{kind} ({media})" if kind and media != "application/json" else kind,
        tuple(_fields(document, schema)),
    )


def _fields(document: Document, schema: Document, within: str = "", depth: int = 1) -> Iterator[Field]:
    """One line a property; those of objects inside stand below theirs, as `servers[].peer_id`."""
    shape = _resolved(document, schema)
    for name, given in shape.get("properties", {}).items():
        yield Field(f"{within}{name}", kind_of(document, given), name in shape.get("required", ()), _words(document, given))
        inner, mark = _inside(document, given)
        if depth < DEEPEST and inner is not None:
            yield from _fields(document, inner, f"{within}{name}{mark}.", depth + 1)


def _inside(document: Document, given: Document) -> tuple[Document | None, str]:
    """The object that a property holds, alone or in a list."""
    for shape in _alternatives(document, given):
        if shape.get("type") == "array":
            inner = _resolved(document, shape.get("items", {}))
            return (inner, "[]") if inner.get("properties") else (None, "")
        if shape.get("properties"):
            return shape, ""
    return None, ""


def kind_of(document: Document, schema: Document) -> str:
    """`integer, 1 to 500` or `list of text` or `one of: hole, thin`; `or null` where that may be."""
    shapes = _alternatives(document, schema)
    kinds = [_plain_kind(document, shape) for shape in shapes if shape.get("type") != "null"]
    nullable = any(shape.get("type") == "null" for shape in shapes)
    return " or ".join(dict.fromkeys(kinds) or ["anything"]) + (" or null" if nullable else "")


def _plain_kind(document: Document, shape: Document) -> str:
    if "enum" in shape:
        return "one of: " + ", ".join(map(str, shape["enum"]))
    if "const" in shape:
        return f"always {shape['const']}"
    kind = shape.get("type", "")
    if kind == "array":
        return f"list of {kind_of(document, shape.get('items', {}))}"
    if kind in ("integer", "number"):
        return f"{kind}{_range(shape)}"
    if kind == "string":
        limit = shape.get("maxLength")
        told = {"date-time": "time (RFC 3339, UTC)", "date": "date", "uuid": "UUID"}.get(shape.get("format", ""), "text")
        return f"{told}, up to {limit} characters" if limit else told
    return {"boolean": "true or false", "object": "object"}.get(kind, "anything")


def _range(shape: Document) -> str:
    low, high = shape.get("minimum", shape.get("exclusiveMinimum")), shape.get("maximum", shape.get("exclusiveMaximum"))
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else f", at most {high}" if high is not None else ""


def _alternatives(document: Document, schema: Document) -> list[Document]:
    shape = _resolved(document, schema)
    inner = shape.get("anyOf") or shape.get("oneOf") or shape.get("allOf")
    return [found for one in inner for found in _alternatives(document, one)] if inner else [shape]


def _part(given: Document, name: str) -> Document:
    found: Document = given.get(name) or {}
    return found


def _resolved(document: Document, schema: Document) -> Document:
    while "$ref" in schema:
        found: Any = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema


def _described(one: Document) -> dict[str, Any]:
    return {"description": one["description"]} if one.get("description") else {}


def _words(document: Document, given: Document) -> str:
    """What is said of it, and what it is where nothing is sent."""
    said = given.get("description") or _resolved(document, given).get("description", "") if "$ref" not in given else ""
    default = given.get("default")
    shown = f"{str(default).lower() if isinstance(default, bool) else default}" if default not in (None, "", [], {}) else ""
    return " ".join(part for part in (said, f"Default {shown}." if shown else "") if part)


def _phrase(status: str) -> str:
    return HTTPStatus(int(status)).phrase if status.isdigit() else status
