"""`/exports`, `/exports/index.json`, `/exports/YYYY-MM-DD.ndjson.gz`."""

from __future__ import annotations

from django.urls import path, re_path

from monitor.exports import views

urlpatterns = [
    path("exports", views.index, name="exports"),
    path("exports/index.json", views.index_json, name="exports-json"),
    re_path(r"^exports/(?P<day>\d{4}-\d\d-\d\d)\.ndjson\.gz$", views.day, name="export"),
]
