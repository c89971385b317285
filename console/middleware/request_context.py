"""Gives every request an id and the address it came from; both reach logs and audit events."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.middleware.client_ip import client_ip
from registry.domain.addresses import parse_networks

_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
HEADER = "X-Request-ID"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """Where a request came from. ``ip`` is None when there is none to know."""

    request_id: str
    ip: str | None


def request_facts(headers: Mapping[str, str], peer: str | None) -> RequestFacts:
    """Return the facts from lower-case header names and the peer's address."""
    offered = headers.get("x-request-id", "")
    request_id = offered if _ACCEPTABLE_ID.fullmatch(offered) else secrets.token_hex(8)
    trusted = parse_networks(settings.TRUSTED_PROXIES)
    return RequestFacts(request_id, client_ip(peer, headers.get("x-forwarded-for", ""), trusted))


def facts_of(request: HttpRequest) -> RequestFacts:
    """Return the facts of a Django request, computed once."""
    facts = getattr(request, "facts", None)
    if facts is None:
        headers = {
            "x-request-id": request.META.get("HTTP_X_REQUEST_ID", ""),
            "x-forwarded-for": request.META.get("HTTP_X_FORWARDED_FOR", ""),
        }
        facts = request_facts(headers, request.META.get("REMOTE_ADDR"))
        request.facts = facts  # type: ignore[attr-defined]
    return cast(RequestFacts, facts)


class RequestContextMiddleware:
    """Sets ``request.facts``, binds the request id to the logs and answers with it in ``X-Request-ID``."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._call_async(request)
        facts = facts_of(request)
        with structlog.contextvars.bound_contextvars(request_id=facts.request_id):
            response = cast(HttpResponseBase, self.get_response(request))
        response.headers[HEADER] = facts.request_id
        return response

    async def _call_async(self, request: HttpRequest) -> HttpResponseBase:
        facts = facts_of(request)
        with structlog.contextvars.bound_contextvars(request_id=facts.request_id):
            response = cast(HttpResponseBase, await self.get_response(request))
        response.headers[HEADER] = facts.request_id
        return response
