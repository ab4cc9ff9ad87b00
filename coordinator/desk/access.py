"""Who may do what under /admin/: all of the staff may look and decide; only superusers manage people. Nobody deletes."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


class StaffMay:
    """For ModelAdmins. What is not said may not be done."""

    may_add = False
    may_change = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_staff(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_staff(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_add and is_staff(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_change and is_staff(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def is_staff(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_staff)
