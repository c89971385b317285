"""Django app of everything HTTP."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """The console: API, pages, uploads, streams."""

    name = "console"

    def ready(self) -> None:
        """Register the system checks."""
        from console import checks  # noqa: F401  # registering is the import's effect
