"""Every `sepal …` that a page or a document shows is one that the command line takes: names and flags, without running any."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer

from blockserver.cli import app
from coordinator.joining import WAYS, command, doctor
from monitor import notices, peer_page
from swarm.snapshot import Outcome, PeerState
from tests.monitor.seeding import unreachable

ROOT = Path(__file__).resolve().parent.parent
GROUP: Any = typer.main.get_command(app)
USAGE_ERROR: Any = typer.BadParameter.__base__
ADDRESS = "/ip4/203.0.113.5/tcp/31330/p2p/12D3KooWx"
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_CODE = re.compile(r"<(code|pre)[^>]*>(.*?)</\1>", re.DOTALL)
_COMMAND = re.compile(r"(?:^|(?<=[\s'\"=(/;&|$]))sepal ([a-z-]+)((?: [^\n]*)?)", re.MULTILINE)
_ENDS = re.compile(r"\s(?:#|\||&&|\|\||;|>|2>|<)(?:\s|$)|[;&|]|\s→|\s·")
"""Where a shell's own words, or a comment, begin."""


def pieces_of(path: Path) -> Iterator[str]:
    """What a file shows as code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        yield from (unescape(re.sub(r"{[%{].*?[%}]}", "X", found[1])) for found in _CODE.findall(text))
    elif path.suffix == ".md":
        yield from _FENCE.findall(text)
        yield from _INLINE.findall(_FENCE.sub("", text))
    else:
        yield text


def commands_in(piece: str) -> Iterator[list[str]]:
    """The words after `sepal`."""
    joined = re.sub(r"\\\n\s*", " ", piece)
    for name, rest in _COMMAND.findall(joined):
        if name not in GROUP.commands:
            continue
        rest = _ENDS.split(rest, maxsplit=1)[0].strip().rstrip(".:,)'\"`")
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
        yield [name, *(word for word in words if word not in ("…", "..."))]


def refusal(words: list[str]) -> str:
    """Why the command line would not take it; empty where it would. Values are not read: placeholders stand for them."""
    node: Any = GROUP
    # `--help=word` shows only the flags about that word: a group's own, before any command is parsed.
    words = [word for word in words if not word.startswith("--help=")]
    context = typer.Context(node, info_name="sepal")
    rest = list(words)
    while hasattr(node, "commands"):
        if not rest or rest[0] not in node.commands:
            return f"no such command: {' '.join(words)}" if rest and not rest[0].startswith("-") else ""
        node = node.commands[rest.pop(0)]
        context = typer.Context(node, parent=context, info_name=node.name)
    try:
        node.make_parser(context).parse_args(args=[word for word in rest if not word.startswith("[")])
    except USAGE_ERROR as error:
        # A flag that is only named, `--relay` say, stands without its value.
        return "" if "requires an argument" in error.format_message() else error.format_message()
    return ""


def shown_files() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md")]
    found += [*ROOT.glob("templates/**/*.html"), *ROOT.glob("deploy/systemd/*.service")]
    return sorted(found)


def test_there_are_commands_to_look_at() -> None:
    every = [words for path in shown_files() for piece in pieces_of(path) for words in commands_in(piece)]
    assert len(every) > 40 and {"serve", "doctor", "chat", "bootstrap", "status"} <= {words[0] for words in every}


@pytest.mark.parametrize("path", shown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_file_shows_is_what_the_command_line_takes(path: Path) -> None:
    wrong = [(words, why) for piece in pieces_of(path) for words in commands_in(piece) if (why := refusal(words))]
    assert not wrong


def test_what_pages_say_in_words_is_what_the_command_line_takes() -> None:
    dark = unreachable("a", 0, 1)
    assert dark.visit is not None and dark.visit.outcome is Outcome.TIMEOUT and dark.state is PeerState.UNREACHABLE
    said = [*peer_page._advice(dark), notices._empty(notices.CrawlFacts(0.0, 1.0))]
    said += [command(way, "tiny-hf", 8, [ADDRESS], "https://swarm.example") for way in WAYS]
    said += [doctor("tiny-hf", blocks, [ADDRESS], "https://swarm.example") for blocks in (None, 8)]
    found = [words for text in said for words in commands_in(re.sub(r"sepal (\w+)[,:.]", r"sepal \1\n", text))]
    assert len(found) >= 8
    assert [refusal(words) for words in found] == [""] * len(found)


@pytest.mark.parametrize("wrong", [["doctor", "--net"], ["serve", "--initial-peer", "x"], ["chat", "--no-such-flag"]])
def test_a_flag_that_is_none_is_noticed(wrong: list[str]) -> None:
    assert "No such option" in refusal(wrong)
