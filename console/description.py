"""The API's own description, for everything that shows it."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from drf_spectacular.generators import SchemaGenerator


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of version 1. It is the same in every process; do not change it."""
    return cast(dict[str, Any], SchemaGenerator().get_schema(request=None, public=True))  # type: ignore[no-untyped-call]
