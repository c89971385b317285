"""JSON bodies, bounded in size and depth, and holding only what the database can store."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from registry.domain.storable import INTEGERS

MOST_LEVELS = 100


class _Bounded:
    """Reads from a stream until more has come than the limit allows."""

    def __init__(self, stream: Any, most_bytes: int) -> None:
        self._stream = stream
        self._left = most_bytes

    def read(self, size: int = -1) -> bytes:
        """Return bytes. Raises RequestDataTooBig past the limit: a chunked body announces no length."""
        piece = bytes(self._stream.read(size if 0 <= size <= self._left else self._left + 1))
        self._left -= len(piece)
        if self._left < 0:
            raise RequestDataTooBig
        return piece


class BoundedJsonParser(JSONParser):
    """Reads JSON, refusing what would be an unexpected error later, or be understood in two ways.

    Raises:
        ParseError: no JSON, a name twice in one object, nested deeper than 100 levels, or text and numbers that
            PostgreSQL's JSON cannot hold (NUL, half surrogate pairs, infinity), or whole numbers beyond 64 bits.
        RequestDataTooBig: more than ``DATA_UPLOAD_MAX_MEMORY_SIZE`` bytes.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the document."""
        body = _Bounded(stream, settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0).read()
        try:
            document = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_number)
        except RecursionError:
            raise ParseError(_("The JSON is nested too deeply.")) from None
        except ValueError as error:
            raise ParseError(_("The body is no JSON: %(why)s") % {"why": error}) from None
        problem = storing_problem(document)
        if problem:
            raise ParseError(problem)
        return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _value in pairs).items() if count > 1)
        raise ParseError(_("The JSON names “%(name)s” twice in one object.") % {"name": ascii(twice[:100])[1:-1]})
    return document


def _no_number(name: str) -> Any:
    raise ParseError(_("The JSON holds %(name)s, which is no number of JSON.") % {"name": name})


def storing_problem(document: Any) -> str:
    """Return one sentence that says why a JSON document cannot be stored, or an empty string."""
    level = [document]
    for _level in range(MOST_LEVELS):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, str) and not _is_storable(value):
                return _("The JSON holds a character that is not allowed (NUL, or half of a surrogate pair).")
            is_beyond = isinstance(value, float) and not math.isfinite(value)
            if is_beyond or (isinstance(value, int) and value not in INTEGERS):
                return _("The JSON holds a number that is too large.")
            if isinstance(value, dict):
                deeper += value.keys()
                deeper += value.values()
            elif isinstance(value, list):
                deeper += value
        if not deeper:
            return ""
        level = deeper
    return _("The JSON is nested too deeply.")


def _is_storable(text: str) -> bool:
    return (text.isascii() and "\0" not in text) or not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)
