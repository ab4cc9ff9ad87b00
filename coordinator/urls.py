"""The site's addresses: the monitor's pages and reads, and the coordinator's advice."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("", include("monitor.urls"))]
