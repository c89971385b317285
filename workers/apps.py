"""Django app of the background: connects the domain's hints to task queues."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WorkersConfig(AppConfig):
    """Imports the receivers, in the web process too, so that hints leave from wherever a change is committed."""

    name = "workers"
    verbose_name = _("Workers")

    def ready(self) -> None:
        """Make the Celery application current and connect the receivers."""
        from workers import (
            celery,  # noqa: F401  # the tasks below must find their broker
            receivers,  # noqa: F401  # connecting is the import's effect
        )
