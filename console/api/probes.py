"""The console's own health and metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from console.identity.tokens import authenticate_token, read_bearer
from console.middleware.client_ip import is_loopback
from console.middleware.request_context import facts_of
from registry.errors import PermissionDenied

log = logging.getLogger(__name__)


@never_cache
@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """Answer 200 while the process answers at all."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_safe
def ready(request: HttpRequest) -> HttpResponse:
    """Answer 200 when database and broker answer, else 503 with which does not."""
    checks: dict[str, Callable[[], object]] = {"database": _ask_database, "broker": _ask_broker}
    states = {name: _state(name, check) for name, check in checks.items()}
    is_ready = all(state == "ok" for state in states.values())
    return JsonResponse({"ready": is_ready, "checks": states}, status=200 if is_ready else 503)


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer Prometheus metrics of this process to this machine and to tokens of people with a site role."""
    if not (_is_local(request) or _has_site_token(request)):
        return HttpResponseNotFound()
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _ask_broker() -> None:
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as client:
        client.ping()


def _state(name: str, check: Callable[[], object]) -> str:
    try:
        check()
    except Exception as error:
        log.warning("ready.%s_failed: %s", name, error)
        return "unreachable"
    return "ok"


def _is_local(request: HttpRequest) -> bool:
    """Say whether the request comes from this machine itself and not through a proxy on it."""
    return is_loopback(facts_of(request).ip) and "HTTP_X_FORWARDED_FOR" not in request.META


def _has_site_token(request: HttpRequest) -> bool:
    credential = read_bearer(request.headers.get("Authorization", ""))
    try:
        found = authenticate_token(credential, facts_of(request).ip) if credential else None
    except PermissionDenied:  # a key for callers from elsewhere
        return False
    return found is not None and found[0].site_role != "none" and found[1].project_id is None
