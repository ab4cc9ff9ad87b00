"""The palette as the style sheet has it: text is readable, the five levels stay apart for every eye, in both themes."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

SHEET = Path(__file__).parents[2] / "monitor" / "static" / "monitor" / "sepal.css"
LEVELS = ("n0", "n1", "n2", "n3", "n6")
TEXT, GRAPHIC, APART = 4.5, 3.0, 20.0

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
EYES = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}

Linear = tuple[float, float, float]


def colours(theme: int) -> dict[str, Linear]:
    """By name; theme 0 is light, 1 dark."""
    found = {}
    for name, value in re.findall(r"--([a-z0-9-]+): ([^;]+);", SHEET.read_text(encoding="utf-8")):
        pair = re.findall(r"#[0-9a-f]{6}", value)
        found[name] = linear(pair[theme] if len(pair) == 2 else pair[0])
    return found


def linear(code: str) -> Linear:
    def channel(at: int) -> float:
        share = int(code[at : at + 2], 16) / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return channel(1), channel(3), channel(5)


def contrast(one: Linear, other: Linear) -> float:
    bright, dark = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def seen_by(eye: str, colour: Linear) -> Linear:
    r, g, b = (min(1.0, max(0.0, sum(k * c for k, c in zip(row, colour, strict=True)))) for row in EYES[eye])
    return r, g, b


def lab(colour: Linear) -> Linear:
    r, g, b = colour
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: Linear, other: Linear) -> float:
    """CIE 1976."""
    return sum((a - b) ** 2 for a, b in zip(lab(one), lab(other), strict=True)) ** 0.5


@pytest.mark.parametrize("theme", [0, 1])
def test_text_is_readable_on_whatever_it_stands(theme: int) -> None:
    palette = colours(theme)
    pairs = [(f"on-{level}", level) for level in LEVELS]
    grounds = ("page", "raised", "bad", "warn", "good", "unknown")
    pairs += [(words, ground) for words in ("text", "quiet") for ground in grounds]
    pairs += [(words, ground) for words in ("link", "n0", "amber") for ground in ("page", "raised")]
    pairs += [("link", ground) for ground in grounds]
    for words, ground in pairs:
        assert contrast(palette[words], palette[ground]) >= TEXT, (words, ground)


@pytest.mark.parametrize("theme", [0, 1])
def test_shapes_without_words_stand_out_from_the_page(theme: int) -> None:
    palette = colours(theme)
    # The levels in between, two and three, have an edge around them.
    for shape in ("n0", "n1", "n6", "edge", "link"):
        assert contrast(palette[shape], palette["page"]) >= GRAPHIC, shape


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("eye", ["everybody", *EYES])
def test_levels_stay_apart(theme: int, eye: str) -> None:
    palette = colours(theme)
    for one, other in combinations(LEVELS, 2):
        pair = (
            (palette[one], palette[other]) if eye == "everybody" else (seen_by(eye, palette[one]), seen_by(eye, palette[other]))
        )
        assert distance(*pair) >= APART, (one, other)
