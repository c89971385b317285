"""Errors as problem+json, shared by the API and the raw ASGI apps. The codes are in ``problem_codes``.

Source: RFC 9457 (problem details), RFC 6901 (JSON pointers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from console.middleware.problem_codes import STATUS_BY_CODE, code_of, title_of
from registry import errors

__all__ = ["CONTENT_TYPE", "STATUS_BY_CODE", "pointer", "problem", "problem_of"]

CONTENT_TYPE = "application/problem+json"
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def problem(
    status: int,
    detail: str,
    *,
    code: str = "",
    field_errors: Sequence[Mapping[str, str]] = (),
    request_id: str = "",
    **extra: Any,
) -> dict[str, Any]:
    """Return the problem document. ``code`` is what programs compare; ``detail`` is one sentence for people.

    Each of ``field_errors`` (``{"field": dotted path, "message"}``) gets the JSON pointer into the body, unless it
    names a ``parameter`` of the address.
    """
    code = code_of(status, code)
    return {
        **extra,
        "type": f"urn:flotilla:problem:{code}",
        "title": title_of(code),
        "status": status,
        "code": code,
        "detail": detail,
        "errors": [
            dict(one) if "parameter" in one else {**one, "pointer": pointer(one["field"])} for one in field_errors
        ],
        "request_id": request_id,
    }


def problem_of(error: errors.RegistryError, request_id: str) -> dict[str, Any]:
    """Return the problem document of an error of the domain. An unknown code is a 400."""
    return problem(
        STATUS_BY_CODE.get(error.code, 400),
        error.message,
        code=error.code,
        field_errors=error.errors,
        request_id=request_id,
        **error.extra,
    )


def pointer(path: str) -> str:
    """Return the pointer of a dotted path: ``routes[0].weight`` is ``#/routes/0/weight``; ``#`` is the whole body."""
    steps = [index or name.replace("~", "~0").replace("/", "~1") for index, name in _STEP.findall(path)]
    return "/".join(["#", *steps])
