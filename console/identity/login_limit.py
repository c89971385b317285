"""How often a password may be guessed: counted in the cache per name and address, and per address (IPv6: per /64).

The cache is a convenience: while it is down people sign in uncounted.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from redis.exceptions import RedisError

from console.middleware.client_ip import counted_address
from console.middleware.request_context import facts_of
from console.shared_cache import count

log = logging.getLogger(__name__)

WINDOW_SECONDS = 300
TRIES_PER_NAME = 10
TRIES_PER_ADDRESS = 100
_LONGEST_NAME = 150


class LoginLimitMiddleware:
    """Answers 429 at the sign-in page once a name was tried too often from one address, or anything from there.

    A try counts before the password is looked at, so that many at once do not slip through; signing in resets the
    name's count, so that only wrong passwords add up. Another address may still sign in to the same account. Whoever is
    signed in tries nothing: they are sent on, whatever password they give.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        self._path = reverse("account_login")
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._call_async(request)
        if not self._is_try(request) or request.user.is_authenticated:
            return self._answer(request)
        refusal = _refusal(request)
        return refusal if refusal is not None else _settle(request, self._answer(request))

    async def _call_async(self, request: HttpRequest) -> HttpResponseBase:
        if not self._is_try(request) or (await request.auser()).is_authenticated:
            return await self._answer_async(request)
        refusal = await sync_to_async(_refusal)(request)
        if refusal is not None:
            return refusal
        return await sync_to_async(_settle)(request, await self._answer_async(request))

    def _is_try(self, request: HttpRequest) -> bool:
        return request.method == "POST" and request.path == self._path

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        answer: HttpResponseBase = self.get_response(request)
        return answer

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        answer: HttpResponseBase = await self.get_response(request)
        return answer


def _refusal(request: HttpRequest) -> HttpResponse | None:
    try:
        tries = [count(key, WINDOW_SECONDS) <= most for key, most in _limits(request)]
    except (RedisError, OSError) as error:
        log.warning("login_limit.cache_unreachable: %s", error)
        return None
    if all(tries):
        return None
    log.warning("login_limit.refused ip=%s", facts_of(request).ip)
    minutes = WINDOW_SECONDS // 60
    sentence = _("Too many failed attempts to sign in. Wait %(minutes)d minutes, then try again.") % {
        "minutes": minutes
    }
    answer = render(request, "429.html", {"sentence": sentence}, status=429)
    answer.headers["Retry-After"] = str(WINDOW_SECONDS)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _settle(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    """Forget the tries of a name that has signed in, and this one of its address."""
    if answer.status_code == 302:
        try:
            cache.delete(_name_key(request))
            with contextlib.suppress(ValueError):  # It ran out in between.
                cache.decr(_address_key(request))
        except (RedisError, OSError) as error:
            log.warning("login_limit.cache_unreachable: %s", error)
    return answer


def _limits(request: HttpRequest) -> list[tuple[str, int]]:
    return [
        (_name_key(request), TRIES_PER_NAME),
        (_address_key(request), TRIES_PER_ADDRESS),
    ]


def _name_key(request: HttpRequest) -> str:
    name = request.POST.get("login", "")[:_LONGEST_NAME].strip().casefold()
    digest = hashlib.sha256(f"{counted_address(facts_of(request).ip)}\n{name}".encode(errors="replace")).hexdigest()
    return f"login:name:{digest}"


def _address_key(request: HttpRequest) -> str:
    return f"login:address:{counted_address(facts_of(request).ip)}"
