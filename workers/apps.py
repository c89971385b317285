"""Django app of the background: connects the domain's hints to task queues."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """Imports the receivers, in the web process too, so that hints leave from wherever a change is committed."""

    name = "workers"

    def ready(self) -> None:
        """Connect the receivers."""
        from workers import receivers  # noqa: F401  # connecting is the import's effect
