"""Django app of everything HTTP."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """The console: API, pages, uploads, streams."""

    name = "console"
