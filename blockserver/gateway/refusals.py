"""What is answered with an error: OpenAI's shape and status codes, and a sentence that says what to do.

OpenAI's own SDKs turn the status into an exception class, and repeat 408, 409, 429 and 5xx by themselves, after as many
seconds as `Retry-After` says. So whatever cannot succeed by repetition is a 4xx.
"""

from __future__ import annotations

from typing import Any

RETRY_FULL_S = 5
"""An answer takes seconds; a place in the queue may be free by then."""
RETRY_SWARM_S = 20
"""Servers come and move in tens of seconds."""


class Refusal(Exception):
    """`status` is HTTP's; `code` is for programs, the message for people; `param` names the field at fault."""

    def __init__(
        self,
        status: int,
        kind: str,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.code, self.message = status, kind, code, message
        self.param, self.retry_after_s = param, retry_after_s

    def document(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


def bad_request(message: str, param: str | None = None, code: str = "invalid_value", status: int = 400) -> Refusal:
    return Refusal(status, "invalid_request_error", code, message, param=param)


def unknown_model(asked: str, served: str) -> Refusal:
    return bad_request(f"there is no model {asked[:100]!r} here; this gateway serves {served}", "model", "model_not_found", 404)


def no_key() -> Refusal:
    return bad_request(
        "this gateway wants an API key that it knows: send Authorization: Bearer KEY", None, "invalid_api_key", 401
    )


def yours_wait(waiting: int) -> Refusal:
    return Refusal(
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
        f"{waiting} of your requests wait already; ask again when one of them is answered",
        retry_after_s=RETRY_FULL_S,
    )


def full(waiting: int) -> Refusal:
    return Refusal(
        503,
        "server_error",
        "gateway_full",
        f"this gateway is full: {waiting} requests wait for their turn; try again in a few seconds",
        retry_after_s=RETRY_FULL_S,
    )


def swarm_incomplete(message: str) -> Refusal:
    return Refusal(503, "server_error", "swarm_incomplete", message, retry_after_s=RETRY_SWARM_S)


def servers_failed(message: str) -> Refusal:
    return Refusal(503, "server_error", "servers_failed", message, retry_after_s=RETRY_FULL_S)


def stopping() -> Refusal:
    return Refusal(503, "server_error", "gateway_stopping", "this gateway is being stopped", retry_after_s=RETRY_FULL_S)


def our_fault() -> Refusal:
    return Refusal(500, "server_error", "internal_error", "the gateway failed in a way it does not know; its log says more")
