"""`{{ figure|tokens }}`: a figure with its thousands apart. `{{ words|ticked }}`: what stands between backticks as code."""

from __future__ import annotations

from django import template
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.filter
def tokens(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


@register.filter
def ticked(words: str) -> SafeString:
    parts = [conditional_escape(part) for part in words.split("`")]
    marked = [f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)]
    return mark_safe("".join(marked))  # noqa: S308  (each part is escaped above)
