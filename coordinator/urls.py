"""The site's addresses: the monitor's pages and reads, and the coordinator's advice."""

from __future__ import annotations

from django.urls import include, path

from coordinator.api import api

urlpatterns = [path("api/v1/", api.urls), path("", include("monitor.urls"))]

handler404 = "coordinator.problems.not_found"
