"""WSGI entry point: pages and API without uploads and streams. The server that is meant is console.asgi."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")  # noqa: TID251
application = get_wsgi_application()
