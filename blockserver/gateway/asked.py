"""What is asked for: a request's JSON as a frozen value, or a refusal that names the field. Knows no model.

What OpenAI knows and a swarm cannot do is refused where it is really asked for, and not left out in silence; fields that
nobody knows are passed over, as SDKs add new ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blockserver.gateway.refusals import Refusal, bad_request

MAX_STOPS = 4
"""As OpenAI."""
LONGEST_STOP = 256
"""Characters; each piece of text is compared with it."""
MAX_MESSAGES = 500
MAX_LENS_TOP = 20
CHAT_TOKENS = 512
"""Length of an answer where nothing is said. OpenAI goes on to the context's end; on a swarm that would reserve volunteers'
memory for what is hardly ever used."""
TEXT_TOKENS = 16
"""As OpenAI."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "n": (None, 1),
    "prediction": (None,),
    "presence_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None,),
    "web_search_options": (None,),
}
"""Fields of OpenAI's interface that are not served, and the values with which they ask for nothing."""


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


B = TypeVar("B", bound=_Body)


class _StreamOptions(_Body):
    include_usage: bool | None = None


class _Extension(_Body):
    progress: bool = False


class _Common(_Body):
    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    sepal: _Extension | None = None


class _Message(_Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]]


_Messages = Annotated[list[_Message], Field(min_length=1, max_length=MAX_MESSAGES)]


class _Chat(_Common):
    messages: _Messages
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None


class _Text(_Common):
    prompt: str | list[int] | list[str] | list[list[int]]


class _Lens(_Body):
    model: str
    messages: _Messages | None = None
    prompt: str | None = None
    top: Annotated[int, Field(ge=1, le=MAX_LENS_TOP)] = 5


Messages = tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Exactly one of the three: turns of a conversation, text, or tokens."""

    messages: Messages | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None

    @property
    def field(self) -> str:
        return "messages" if self.messages is not None else "prompt"


@dataclass(frozen=True, slots=True)
class Asked:
    model: str
    prompt: Prompt
    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stops: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    progress: bool = False
    """Sepal's own: the stream begins at once and says how many requests come before."""


@dataclass(frozen=True, slots=True)
class LensAsked:
    model: str
    prompt: Prompt
    top: int


def read_chat(body: bytes) -> Asked:
    given = _object(body)
    _refuse_unserved(given)
    read = _checked(_Chat, given)
    if read.max_tokens is not None and read.max_completion_tokens is not None and read.max_tokens != read.max_completion_tokens:
        raise bad_request("max_tokens and max_completion_tokens differ: give one of them", "max_completion_tokens")
    longest = read.max_completion_tokens or read.max_tokens or CHAT_TOKENS
    return _asked(read, Prompt(messages=_turns(read.messages)), longest)


def read_text(body: bytes) -> Asked:
    given = _object(body)
    _refuse_unserved(given)
    read = _checked(_Text, given)
    return _asked(read, _prompt(read.prompt), read.max_tokens or TEXT_TOKENS)


def read_lens(body: bytes) -> LensAsked:
    read = _checked(_Lens, _object(body))
    if (read.messages is None) == (read.prompt is None):
        raise bad_request("give either messages or prompt", "prompt")
    prompt = Prompt(text=read.prompt) if read.messages is None else Prompt(messages=_turns(read.messages))
    return LensAsked(read.model, prompt, read.top)


def _asked(read: _Common, prompt: Prompt, max_tokens: int) -> Asked:
    return Asked(
        model=read.model,
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=read.temperature,
        top_p=read.top_p,
        top_k=read.top_k,
        seed=read.seed,
        stops=_stops(read.stop),
        stream=bool(read.stream),
        include_usage=bool(read.stream_options and read.stream_options.include_usage),
        progress=bool(read.sepal and read.sepal.progress),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {str(error)[:200]}", code="invalid_json") from error
    if not isinstance(given, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    return given


def _refuse_unserved(given: dict[str, Any]) -> None:
    for name, neutral in NEUTRAL.items():
        if name in given and not any(given[name] == value for value in neutral):
            raise _unserved(name, given[name])


def _unserved(name: str, value: Any) -> Refusal:
    why = "only n=1 is served: one answer a request" if name == "n" else f"{name} is not served by this gateway: leave it out"
    return bad_request(why, name, "unsupported_parameter" if name != "n" else "unsupported_value")


def _checked(kind: type[B], given: dict[str, Any]) -> B:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise bad_request(f"{place}: {first['msg']}", str(first["loc"][0]) if first["loc"] else None) from error


def _turns(messages: list[_Message]) -> Messages:
    # What OpenAI calls developer today was called system before, and still is by models' chat templates.
    return tuple(
        {"role": "system" if message.role == "developer" else message.role, "content": _words(message.content)}
        for message in messages
    )


def _words(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    texts = [part.get("text") if part.get("type") == "text" else None for part in content]
    words = [text for text in texts if isinstance(text, str)]
    if len(words) != len(texts):
        raise bad_request("messages: only text is served, no pictures, sound or files", "messages", "unsupported_content")
    return "".join(words)


def _prompt(given: str | list[int] | list[str] | list[list[int]]) -> Prompt:
    if isinstance(given, str):
        return Prompt(text=given)
    first = given[0] if given else None
    if isinstance(first, int):
        return Prompt(tokens=tuple(token for token in given if isinstance(token, int)))
    if len(given) != 1 or first is None:
        raise bad_request("one prompt a request is served: a text, or a list of tokens", "prompt")
    return Prompt(text=first) if isinstance(first, str) else Prompt(tokens=tuple(first))


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = (given,) if isinstance(given, str) else tuple(given or ())
    if len(stops) > MAX_STOPS or not all(0 < len(stop) <= LONGEST_STOP for stop in stops):
        raise bad_request(f"stop: at most {MAX_STOPS} texts of 1 to {LONGEST_STOP} characters", "stop")
    return stops
