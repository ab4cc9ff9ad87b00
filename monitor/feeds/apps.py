from django.apps import AppConfig


class FeedsConfig(AppConfig):
    name = "monitor.feeds"
    label = "feeds"
    default_auto_field = "django.db.models.BigAutoField"
