"""Addresses of the feeds and badges. The stream stands with the API (`coordinator.urls`)."""

from __future__ import annotations

from django.urls import path, re_path

from monitor.feeds import views

PREFIX = r"(?P<prefix>[A-Za-z0-9_\-]{1,128})"

urlpatterns = [
    path("incidents.atom", views.incidents_atom, name="incidents-atom"),
    path("incidents.json", views.incidents_json, name="incidents-json"),
    re_path(rf"^badge/{PREFIX}\.svg$", views.badge_svg, name="badge-svg"),
    re_path(rf"^badge/{PREFIX}\.json$", views.badge_json, name="badge-json"),
]
