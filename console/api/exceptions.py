"""The one place where domain errors become HTTP: problem+json."""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response
from rest_framework.views import exception_handler


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the problem document for an expected error, or None for a bug."""
    return exception_handler(error, context)
