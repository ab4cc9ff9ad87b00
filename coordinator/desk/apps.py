from django.apps import AppConfig
from django.contrib.admin import apps as admin_apps


class DeskConfig(AppConfig):
    default = True
    name = "coordinator.desk"
    label = "desk"
    verbose_name = "Swarm"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from coordinator.desk.rulings import StaffOfThisSite
        from monitor.history import backup
        from monitor.rulings import register

        register(StaffOfThisSite())
        for table in ("desk_ruling", "desk_incidentnote"):
            backup.register(table, person="made_by_id")


class DeskAdminConfig(admin_apps.AdminConfig):
    """Django's admin with our site in place of its own."""

    default = False
    default_site = "coordinator.desk.site.DeskSite"
