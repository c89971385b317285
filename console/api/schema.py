"""How answers look in the API's own description."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers


def paged(row: type[serializers.BaseSerializer[Any]]) -> serializers.Serializer[Any]:
    """Return the shape of one page of rows."""
    return inline_serializer(
        name=f"{row.__name__.removesuffix('Serializer')}Page",
        fields={
            "next": serializers.URLField(allow_null=True),
            "previous": serializers.URLField(allow_null=True),
            "results": row(many=True),
        },
    )


class NamedSchema(AutoSchema):
    """Names operations after view and method: ``project_list_get``, ``node_move_drain_post``."""

    def get_operation_id(self) -> str:
        """Return the name; unique because views are."""
        words = re.findall(r"[A-Z][a-z]*", type(self.view).__name__.removesuffix("View"))
        return "_".join([*(word.lower() for word in words), *filter(None, [getattr(self.view, "verb", "")])]) + (
            f"_{self.method.lower()}"
        )


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Tells the generator what TokenAuthentication reads. Registered by being defined."""

    target_class = "console.identity.tokens.TokenAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "http", "scheme": "bearer"}
