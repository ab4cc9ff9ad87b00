"""The log-in form: the admin's own, with a limit on failures."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from unfold.forms import AuthenticationForm

from coordinator.desk import throttle
from coordinator.limits import address_of


class LogInForm(AuthenticationForm):
    def clean(self) -> dict[str, Any]:
        assert self.request is not None  # the log-in page gives it
        name = self.cleaned_data.get("username", "")
        try:
            started = throttle.begin(name, address_of(self.request), datetime.now(UTC))
        except throttle.TooManyTries as error:
            raise ValidationError(str(error), code="too_many_tries") from error
        cleaned: dict[str, Any] = super().clean()
        started.succeeded()
        return cleaned
