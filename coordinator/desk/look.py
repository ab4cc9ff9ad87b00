"""How the admin looks, and what stands in its menu. Settings only; imports nothing of the site."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy


def _to(title: str, name: str, icon: str) -> dict[str, Any]:
    return {"title": title, "link": reverse_lazy(f"admin:{name}"), "icon": icon}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Sepal",
    "SITE_HEADER": "Sepal",
    "SITE_SUBHEADER": "for the site's staff; times in UTC",
    "SITE_SYMBOL": "local_florist",
    "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("monitor/sepal.svg")}],
    "SHOW_VIEW_ON_SITE": False,
    "STYLES": [lambda request: static("coordinator/desk.css")],
    "COLORS": {
        "primary": {
            "50": "#e4f0f8",
            "100": "#cfe6f7",
            "200": "#a9d2ef",
            "300": "#8cc8f2",
            "400": "#6fb3e0",
            "500": "#2f83bd",
            "600": "#0b5c94",
            "700": "#094d7c",
            "800": "#1f3f5b",
            "900": "#17324a",
            "950": "#0f2233",
        }
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "title": "Look",
                "items": [
                    _to("What needs action", "index", "grid_view"),
                    _to("Hints", "coordinator_lease_changelist", "forward_to_inbox"),
                    _to("Ghosts and doubles", "oddities", "content_copy"),
                    _to("Crawls", "monitor_crawl_changelist", "radar"),
                    _to("Replay", "replays", "replay"),
                    _to("Incidents and notes", "monitor_incident_changelist", "report"),
                ],
            },
            {
                "title": "Decide",
                "separator": True,
                "items": [
                    _to("Quarantine", "desk_quarantine_changelist", "block"),
                    _to("Importance of models", "coordinator_importance_changelist", "balance"),
                    _to("Hide", "hiding_hidden_changelist", "visibility_off"),
                    _to("Maintenance", "desk_maintenance_changelist", "engineering"),
                    _to("Banner", "desk_banner_changelist", "campaign"),
                ],
            },
            {
                "title": "Who did what",
                "separator": True,
                "items": [
                    _to("Audit", "admin_logentry_changelist", "history"),
                    _to("People", "auth_user_changelist", "group"),
                ],
            },
        ],
    },
}
