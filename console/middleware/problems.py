"""Domain errors as problem+json: the table from codes to status numbers, shared by the API and the raw ASGI apps.

Source: RFC 9457 (problem details).
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from registry import errors

CONTENT_TYPE = "application/problem+json"

STATUS_BY_CODE: dict[str, int] = {
    errors.ValidationFailed.code: 400,
    errors.PermissionDenied.code: 403,
    errors.ReauthenticationRequired.code: 403,
    errors.NotFound.code: 404,
    errors.InvalidTransition.code: 409,
    errors.Conflict.code: 409,
    errors.Immutable.code: 409,
    errors.StaleWrite.code: 412,
    errors.PreconditionRequired.code: 428,
    errors.QuotaExceeded.code: 413,
    errors.StorageFailed.code: 507,
}


def problem(
    status: int,
    detail: str,
    *,
    code: str = "",
    title: str = "",
    field_errors: Sequence[dict[str, str]] = (),
    request_id: str = "",
    **extra: Any,
) -> dict[str, Any]:
    """Return the problem document. ``code`` is what programs compare; ``detail`` is one sentence for people."""
    title = title or _phrase(status)
    code = code or title.lower().replace(" ", "_").replace("-", "_")
    return {
        **extra,
        "type": f"urn:flotilla:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "errors": list(field_errors),
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


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Checksum Mismatch" if status == 460 else "Error"
