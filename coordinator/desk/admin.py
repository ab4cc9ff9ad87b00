"""Where Django's admin looks for what is registered."""

from coordinator.desk import records_admin, rulings_admin  # noqa: F401
