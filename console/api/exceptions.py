"""The one place where domain errors become HTTP: problem+json."""

from __future__ import annotations

import logging
import math
from typing import Any

from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from console.middleware.problems import CONTENT_TYPE, problem, problem_of
from console.middleware.request_context import facts_of
from registry.errors import RegistryError
from serving_node.contract.errors import ContractError

log = logging.getLogger(__name__)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the problem document of an error. A bug is logged and answered with 500, without its details."""
    request_id = facts_of(context["request"]).request_id
    headers: dict[str, str] = {}
    if isinstance(error, RegistryError):
        document = problem_of(error, request_id)
        if document["status"] == 503:
            headers = {"Retry-After": "30"}
    elif isinstance(error, ContractError):
        field_errors = [{"field": error.field, "message": error.message}]
        document = problem(
            400, error.message, code="validation_failed", field_errors=field_errors, request_id=request_id
        )
    elif isinstance(error, Http404):
        document = problem(404, _("There is no such resource."), code="not_found", request_id=request_id)
    elif isinstance(error, PermissionDenied):
        document = problem(403, str(error) or _("Not allowed."), code="permission_denied", request_id=request_id)
    elif isinstance(error, RequestDataTooBig):
        document = problem(413, _("The body is too large."), code="too_large", request_id=request_id)
    elif isinstance(error, exceptions.APIException):
        document, headers = _of_framework(error, request_id)
    elif isinstance(error, OperationalError | InterfaceError):
        log.warning("api.database_unreachable: %s", error)
        document = problem(503, _("The database cannot be reached; try again."), request_id=request_id)
        headers = {"Retry-After": "2"}
    else:
        log.exception("api.unexpected", exc_info=error)
        document = problem(500, _("An unexpected error; look for the request id in the log."), request_id=request_id)
    if not isinstance(error, DatabaseError):
        set_rollback()
    return Response(document, status=document["status"], headers=headers, content_type=CONTENT_TYPE)


def _of_framework(error: exceptions.APIException, request_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    headers: dict[str, str] = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(getattr(error, "auth_header"))  # noqa: B009
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(math.ceil(getattr(error, "wait")))  # noqa: B009
    if isinstance(error, exceptions.ValidationError):
        detail = _("Some fields are not acceptable.")
        field_errors = list(_flatten(error.detail, ""))
        if len(field_errors) == 1:
            detail = field_errors[0]["message"]
        return (
            problem(400, detail, code="validation_failed", field_errors=field_errors, request_id=request_id),
            headers,
        )
    code = error.get_codes()
    return (
        problem(
            error.status_code,
            str(error.detail),
            code=code if isinstance(code, str) else "",
            request_id=request_id,
        ),
        headers,
    )


def _flatten(detail: Any, path: str) -> list[dict[str, str]]:
    """Return field problems with dotted paths from the framework's nested lists and dicts."""
    if isinstance(detail, dict):
        return [
            problem
            for key, value in detail.items()
            for problem in _flatten(value, path if key == "non_field_errors" else f"{path}.{key}".lstrip("."))
        ]
    if isinstance(detail, list):
        found: list[dict[str, str]] = []
        for index, value in enumerate(detail):
            found += _flatten(value, f"{path}[{index}]" if isinstance(value, dict | list) else path)
        return found
    return [{"field": path, "message": str(detail)}]


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses (a foreign host name, too many fields): programs get a problem document."""
    if not request.path.startswith(("/api/", "/scim/")):
        return defaults.bad_request(request, exception)
    sentence = (
        _("This server does not answer to that host name.")
        if isinstance(exception, DisallowedHost)
        else _("The request is not understood.")
    )
    document = problem(400, sentence, request_id=facts_of(request).request_id)
    return JsonResponse(document, status=400, content_type=CONTENT_TYPE)


@csrf_exempt
def unknown_address(request: HttpRequest, *_args: Any, **_kwargs: Any) -> JsonResponse:
    """Answer 404 as a problem document for every address under /api/ that is not one."""
    document = problem(404, _("There is no such address."), code="not_found", request_id=facts_of(request).request_id)
    return JsonResponse(document, status=404, content_type=CONTENT_TYPE)
