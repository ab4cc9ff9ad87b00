from django.apps import AppConfig


class HidingConfig(AppConfig):
    name = "monitor.hiding"
    label = "hiding"
    default_auto_field = "django.db.models.BigAutoField"
