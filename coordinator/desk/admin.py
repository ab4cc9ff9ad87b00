"""Where Django's admin looks for what is registered."""

from coordinator.desk import hidden_admin, importance_admin, records_admin, rulings_admin  # noqa: F401
