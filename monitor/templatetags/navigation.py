"""`{% site_links as links %}`: the pages that others have added to the navigation."""

from __future__ import annotations

from django import template

from monitor.extensions import Link, links

register = template.Library()


@register.simple_tag
def site_links() -> tuple[Link, ...]:
    return links()
