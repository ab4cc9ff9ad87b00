"""The OpenAPI document, completed: what holds for every operation is written into each of them here, and not beside each door.

Every operation may answer with a problem document; every read has an ETag and may say 304; every answer has an example that is
put together from those of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.api.problems import CATALOGUE, MEDIA_TYPE

PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457. `type` is the address of a page that says what to do.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "enum": [kind.url for kind in CATALOGUE]},
        "title": {"type": "string", "description": "The same for all problems of this type"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599, "description": "As the answer's own"},
        "detail": {"type": "string", "description": "What is wrong with this request"},
        "errors": {
            "type": "array",
            "description": "With `invalid-request`: each value that is not valid",
            "items": {
                "type": "object",
                "required": ["where", "what"],
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
}
_STATUSES = {
    "400": "The request cannot be read",
    "401": "Not signed by the peer that it names",
    "404": "Not known here",
    "405": "Not with this method",
    "410": "Known, and no longer kept",
    "413": "Too long",
    "422": "A parameter or the body is not valid",
    "429": "Asked too often",
    "500": "Our fault",
    "503": "Cannot be answered at the moment",
}
_WITH_RETRY = ("429", "503")
_WRITES_ONLY = ("401", "413")
_READS_ONLY = ("410",)
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 1}}}
_READ_HEADERS = {
    "ETag": {"description": "Send it as If-None-Match to get a 304 while nothing has changed", "schema": {"type": "string"}},
    "Last-Modified": {"description": "When the swarm was last seen", "schema": {"type": "string"}},
    "Cache-Control": {"description": "For how long it may be kept", "schema": {"type": "string"}},
}
_IF_NONE_MATCH = {
    "in": "header",
    "name": "If-None-Match",
    "description": "The ETag of the answer that you have",
    "schema": {"type": "string"},
    "required": False,
}
MAX_DEPTH = 24
"""Of an example: no answer here is nested deeper."""


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    components = dict(document.get("components", {}))
    schemas = {**components.get("schemas", {}), "Problem": PROBLEM}
    paths = {
        path: {method: _operation(method, operation, schemas) for method, operation in methods.items()}
        for path, methods in document["paths"].items()
    }
    return {**document, "paths": paths, "components": {**components, "schemas": schemas}}


def _operation(method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    reads = method == "get"
    responses = {str(status): _success(answer, schemas, reads) for status, answer in operation["responses"].items()}
    if reads:
        responses["304"] = {"description": "You have it already", "headers": {"ETag": _READ_HEADERS["ETag"]}}
    for status, words in _STATUSES.items():
        if status not in (_WRITES_ONLY if reads else _READS_ONLY):
            responses[status] = _problem(status, words)
    parameters = [*operation.get("parameters", []), *([_IF_NONE_MATCH] if reads else [])]
    return {**operation, "parameters": parameters, "responses": responses}


def _success(answer: Mapping[str, Any], schemas: Mapping[str, Any], reads: bool) -> dict[str, Any]:
    content = {
        media: {**body, "example": example_of(body["schema"], schemas)} if "schema" in body else dict(body)
        for media, body in answer.get("content", {}).items()
    }
    return {**answer, **({"headers": _READ_HEADERS} if reads else {}), "content": content}


def _problem(status: str, words: str) -> dict[str, Any]:
    kind = next((kind for kind in CATALOGUE if kind.status == int(status)), None)
    assert kind is not None  # a test holds the catalogue against this table
    example = {"type": kind.url, "title": kind.title, "status": kind.status, "detail": kind.remedy}
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}}
    return {"description": words, "content": content, **({"headers": _RETRY_AFTER} if status in _WITH_RETRY else {})}


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> Any:
    """Of the schema's own examples the first; without one, put together from its parts."""
    if depth > MAX_DEPTH:
        return None
    if schema.get("examples"):
        return schema["examples"][0]
    for word in ("example", "const", "default"):
        if word in schema:
            return schema[word]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rsplit("/", 1)[-1]], schemas, depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return example_of(schema[word][0], schemas, depth + 1)
    return _of_type(schema, schemas, depth)


def _of_type(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if kind == "object":
        return {name: example_of(part, schemas, depth + 1) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [example_of(schema["items"], schemas, depth + 1)] if "items" in schema else []
    plain: dict[Any, Any] = {"string": "text", "integer": schema.get("minimum", 1), "number": 1.0, "boolean": False}
    return plain.get(kind)
