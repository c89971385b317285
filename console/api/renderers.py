"""Answers as bytes."""

from __future__ import annotations

from typing import Any

import orjson
from rest_framework.renderers import JSONRenderer
from rest_framework.utils.encoders import JSONEncoder

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME
_rest = JSONEncoder().default


class FastJsonRenderer(JSONRenderer):
    """JSON by orjson, which takes a tenth of the time; what it does not know is written as ever."""

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        """Return the document."""
        if data is None:
            return b""
        try:
            return orjson.dumps(data, default=_rest, option=_OPTIONS)
        except TypeError:  # numbers beyond 64 bits
            return bytes(super().render(data, accepted_media_type, renderer_context))
