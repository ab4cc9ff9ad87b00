"""What people put into the form, checked; errors in words. Knows no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from monitor.alerts.destinations import BadDestination, read
from monitor.alerts.models import Way
from monitor.alerts.rules import Topic
from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id, parse_prefix

MAX_TARGET = 50
"""Servers a block. The best-covered public swarm has about thirty."""
MAX_EMAIL = 254


@dataclass(frozen=True, slots=True)
class Asked:
    """What the form says, each field as far as it is right."""

    topic: Topic = Topic.MODEL
    prefix: str = ""
    peer_id: str = ""
    target: int = 0
    way: Way = Way.EMAIL
    address: str = ""


def read_form(given: Mapping[str, str], *, private: bool, mail: bool) -> tuple[Asked, list[str]]:
    """`mail` is whether this site sends e-mail. What the topic does not need is left out."""
    text = {name: given.get(name, "").strip() for name in ("topic", "model", "peer", "target", "way", "address")}
    complaints: list[str] = []
    topic = Topic(text["topic"]) if text["topic"] in tuple(Topic) else Topic.MODEL
    if text["topic"] and text["topic"] not in tuple(Topic):
        complaints.append("Choose what you want to be told of.")
    prefix = _prefix(text["model"], complaints) if topic in (Topic.MODEL, Topic.REDUNDANCY, Topic.CANARY) else ""
    peer_id = _peer(text["peer"], complaints) if topic is Topic.PEER else ""
    target = _target(text["target"], complaints) if topic is Topic.REDUNDANCY else 0
    default = Way.EMAIL if mail else Way.WEBHOOK
    way = Way(text["way"]) if text["way"] in Way.values else default
    address = _address(way, text["address"], complaints, private=private, mail=mail)
    return Asked(topic, prefix, peer_id, target, way, address), complaints


def _prefix(text: str, complaints: list[str]) -> str:
    try:
        return parse_prefix(text)
    except BadRecord:
        complaints.append("Choose a model.")
        return ""


def _peer(text: str, complaints: list[str]) -> str:
    try:
        return parse_peer_id(text)
    except BadRecord:
        complaints.append("The peer id is that of the server's first lines; it begins with 12D3KooW or Qm.")
        return ""


def _target(text: str, complaints: list[str]) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= MAX_TARGET:
        return int(text)
    complaints.append(f"The target is a number of servers from 1 to {MAX_TARGET}.")
    return 0


def _address(way: Way, text: str, complaints: list[str], *, private: bool, mail: bool) -> str:
    try:
        if way == Way.WEBHOOK:
            read(text, private=private)
        elif not mail:
            complaints.append("This site sends no e-mail; use a webhook.")
        else:
            validate_email(text)
            if len(text) > MAX_EMAIL or not text.isascii():
                raise ValidationError("too long")
    except BadDestination as error:
        complaints.append(str(error))
    except ValidationError:
        complaints.append("This is no e-mail address.")
    return text
