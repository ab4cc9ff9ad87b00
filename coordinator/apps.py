from django.apps import AppConfig


class CoordinatorConfig(AppConfig):
    name = "coordinator"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Sets the Celery application that every process of the site sends its tasks through.
        from django.core.checks import register as register_check

        import coordinator.celery  # noqa: F401
        from coordinator.checks import join_addresses
        from coordinator.extension import register_chat, register_leases, register_needs, register_progress

        register_leases()
        register_needs()
        register_progress()
        register_chat()
        register_check(join_addresses)
