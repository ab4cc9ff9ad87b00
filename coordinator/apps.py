from django.apps import AppConfig


class CoordinatorConfig(AppConfig):
    name = "coordinator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from coordinator.extension import register_leases

        register_leases()
