"""`{{ figure|tokens }}`: a figure with its thousands apart, for axes and captions."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def tokens(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"
