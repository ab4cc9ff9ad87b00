"""What a change of the OpenAPI document would break for those who rely on the old one. Pure.

Inside v1 there is only more: more operations, parameters that may be left out, fields, words. Taking something away or
narrowing it breaks somebody: for what is sent, that means taking less than before; for what is answered, promising less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_AT_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_AT_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_ANY = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


def breaking(old: Schema, new: Schema) -> list[str]:
    """A sentence for each thing that would break, empty where nothing would."""
    return list(_Comparison(old, new).run())


class _Comparison:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._compared_already: set[tuple[int, int, bool]] = set()

    def run(self) -> Iterator[str]:
        for path, methods in self._old["paths"].items():
            for method, before in methods.items():
                after = self._new["paths"].get(path, {}).get(method)
                where = f"{method.upper()} {path}"
                if after is None:
                    yield f"{where} is gone"
                else:
                    yield from self._parameters(where, before, after)
                    yield from self._body(where, before, after)
                    yield from self._responses(where, before, after)

    def _parameters(self, where: str, before: Schema, after: Schema) -> Iterator[str]:
        had = {(p["in"], p["name"]): p for p in before.get("parameters", ())}
        has = {(p["in"], p["name"]): p for p in after.get("parameters", ())}
        for (place, name), parameter in had.items():
            here = f"{where}: {place} parameter {name!r}"
            now = has.get((place, name))
            if now is None:
                yield f"{here} is gone"
                continue
            if now.get("required") and not parameter.get("required"):
                yield f"{here} must now be given"
            yield from self._sent(here, parameter.get("schema", {}), now.get("schema", {}))
        for (place, name), parameter in has.items():
            if (place, name) not in had and parameter.get("required"):
                yield f"{where}: {place} parameter {name!r} is new and must be given"

    def _body(self, where: str, before: Schema, after: Schema) -> Iterator[str]:
        had, has = before.get("requestBody"), after.get("requestBody")
        if has and has.get("required") and not (had and had.get("required")):
            yield f"{where}: a body must now be sent"
        for media, content in (had or {}).get("content", {}).items():
            now = (has or {}).get("content", {}).get(media)
            if now is None:
                yield f"{where}: a body of {media} is no longer taken"
            else:
                yield from self._sent(f"{where}: body", content.get("schema", {}), now.get("schema", {}))

    def _responses(self, where: str, before: Schema, after: Schema) -> Iterator[str]:
        for status, response in before.get("responses", {}).items():
            now = after.get("responses", {}).get(status)
            if now is None:
                yield f"{where}: the answer {status} is gone"
                continue
            for media, content in response.get("content", {}).items():
                if media not in now.get("content", {}):
                    yield f"{where}: the answer {status} no longer comes as {media}"
                else:
                    schema = now["content"][media].get("schema", {})
                    yield from self._answered(f"{where}: answer {status}", content.get("schema", {}), schema)
            for header in response.get("headers", {}):
                if header not in now.get("headers", {}):
                    yield f"{where}: the answer {status} no longer has the header {header}"

    def _sent(self, where: str, before: Schema, after: Schema) -> Iterator[str]:
        """Whatever was taken must still be taken."""
        yield from self._compared(where, before, after, sent=True)

    def _answered(self, where: str, before: Schema, after: Schema) -> Iterator[str]:
        """Whatever comes must be what was promised."""
        yield from self._compared(where, before, after, sent=False)

    def _compared(self, where: str, before: Schema, after: Schema, sent: bool) -> Iterator[str]:
        # Each pair of schemas once: one may hold itself, and what many operations share need not be told for all of them.
        pair = (id(before), id(after), sent)
        if pair in self._compared_already:
            return
        self._compared_already.add(pair)
        old, new = _Shape(before, self._old), _Shape(after, self._new)
        yield from _types(where, old, new, sent)
        yield from _words(where, old, new, sent)
        yield from _bounds(where, old, new, sent)
        yield from self._members(where, old, new, sent)
        for name in ("items", "additionalProperties"):
            had, has = old.part(name), new.part(name)
            if had is not None and has is not None:
                yield from self._compared(f"{where}[]", had, has, sent)

    def _members(self, where: str, old: _Shape, new: _Shape, sent: bool) -> Iterator[str]:
        for name, member in old.members.items():
            here = f"{where}.{name}"
            if name not in new.members:
                yield f"{here} is gone"
                continue
            if not sent and name in old.required and name not in new.required:
                yield f"{here} may now be left out"
            yield from self._compared(here, member, new.members[name], sent)
        if sent:
            for name in sorted(new.required - old.required):
                yield f"{where}.{name} must now be given"


class _Shape:
    """A schema with its references followed and its alternatives put together."""

    def __init__(self, schema: Schema, document: Schema) -> None:
        self.parts = list(_alternatives(schema, document))
        self.members: dict[str, Schema] = {}
        for part in self.parts:
            self.members.update(part.get("properties", {}))
        described = [frozenset(part.get("required", ())) for part in self.parts if "properties" in part]
        self.required: frozenset[str] = frozenset.intersection(*described) if described else frozenset()

    @property
    def types(self) -> frozenset[str]:
        found: set[str] = set()
        for part in self.parts:
            kind = part.get("type")
            if kind is None and "const" in part:
                kind = _type_of(part["const"])
            if kind is None:
                return _ANY
            found.update([kind] if isinstance(kind, str) else kind)
        return frozenset(found | ({"integer"} if "number" in found else set()))

    @property
    def words(self) -> frozenset[str] | None:
        """The only values that there may be, None where there are others."""
        listed: set[str] = set()
        for part in self.parts:
            if "enum" in part:
                listed.update(map(repr, part["enum"]))
            elif "const" in part:
                listed.add(repr(part["const"]))
            elif part.get("type") != "null":
                return None
        return frozenset(listed)

    def bound(self, name: str) -> Any:
        values = [part[name] for part in self.parts if name in part]
        return values[0] if values else None

    def part(self, name: str) -> Schema | None:
        return next((part[name] for part in self.parts if isinstance(part.get(name), Mapping)), None)


def _alternatives(schema: Schema, document: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        yield from _alternatives(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]], document)
        return
    several = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    if not several:
        yield schema
    for part in several:
        yield from _alternatives(part, document)


def _types(where: str, old: _Shape, new: _Shape, sent: bool) -> Iterator[str]:
    lost, gained = old.types - new.types, new.types - old.types
    if sent and lost:
        yield f"{where} no longer takes {', '.join(sorted(lost))}"
    if not sent and gained:
        yield f"{where} may now be {', '.join(sorted(gained))}"


def _words(where: str, old: _Shape, new: _Shape, sent: bool) -> Iterator[str]:
    """A new word in an answer is more, and readers are told to expect such; a word that is no longer taken is less."""
    if sent and new.words is not None and (old.words is None or old.words - new.words):
        gone = sorted(old.words - new.words) if old.words is not None else ["anything but its listed words"]
        yield f"{where} no longer takes {', '.join(gone)}"
    if not sent and old.words is not None and new.words is None:
        yield f"{where} may now be any word"


def _bounds(where: str, old: _Shape, new: _Shape, sent: bool) -> Iterator[str]:
    """In what is sent a bound may only widen; in what is answered, only narrow."""
    for name in (*_AT_LEAST, *_AT_MOST):
        had, has = old.bound(name), new.bound(name)
        tighter, looser = (has, had) if sent else (had, has)
        if tighter is None or tighter == looser:
            continue
        if looser is None or (tighter > looser if name in _AT_LEAST else tighter < looser):
            yield f"{where}: {name} was {had} and is {has}"
    if sent and new.bound("pattern") not in (None, old.bound("pattern")):
        yield f"{where}: pattern was {old.bound('pattern')} and is {new.bound('pattern')}"


def _type_of(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (type(None), "null")):
        if isinstance(value, kind):
            return name
    return "array" if isinstance(value, list) else "object"
