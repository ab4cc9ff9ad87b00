"""`/alerts`, and the secret link of each subscription."""

from __future__ import annotations

from django.urls import path, re_path

from monitor.alerts import views

urlpatterns = [
    path("alerts", views.alerts, name="alerts"),
    re_path(r"^alerts/(?P<secret>[A-Za-z0-9_\-]{32})$", views.manage, name="alert"),
]
