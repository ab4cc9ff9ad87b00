"""The admin's site: its first page is the board of gaps, and its log-in is throttled. Staff only, everywhere."""

from __future__ import annotations

from django.urls import URLPattern, path
from unfold.sites import UnfoldAdminSite

from coordinator.desk.forms import LogInForm


class DeskSite(UnfoldAdminSite):
    login_form = LogInForm
    index_title = "What needs action"
    enable_nav_sidebar = True

    def get_urls(self) -> list[URLPattern]:
        from coordinator.desk import pages

        doors = [
            path("", self.admin_view(pages.board), name="index"),
            path("oddities/", self.admin_view(pages.oddities), name="oddities"),
            path("hints/<uuid:hint_id>/", self.admin_view(pages.explained), name="explained"),
            path("replay/", self.admin_view(pages.replays), name="replays"),
            path("replay/<int:crawl_id>/", self.admin_view(pages.replay), name="replay"),
            path("replay/<int:crawl_id>/<str:prefix>/", self.admin_view(pages.replay), name="replay-model"),
            path("records/", self.admin_view(self.index), name="records"),
        ]
        return [*doors, *super().get_urls()]
