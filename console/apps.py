"""Django app of everything HTTP."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """The console: API, pages, uploads, streams."""

    name = "console"

    def ready(self) -> None:
        """Register the system checks and what is recorded of signing in."""
        from console import checks  # noqa: F401  # registering is the import's effect
        from console.identity import sign_in_events  # noqa: F401
