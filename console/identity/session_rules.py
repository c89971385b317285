"""What holds for every request and stream of a session: it is not over, and has the second factor that is asked for."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.mfa.utils import is_mfa_enabled
from allauth.usersessions.models import UserSession
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from redis.exceptions import RedisError

from console.middleware.problems import CONTENT_TYPE, problem
from console.middleware.request_context import facts_of
from registry.domain.sign_in import needs_second_factor
from registry.errors import SecondFactorRequired
from registry.models import User
from registry.services.sessions import session_seen

log = logging.getLogger(__name__)

SEEN_SECONDS = 60
_HAS_FACTOR = "has_second_factor"
# Where somebody may go who has yet to set up a second factor.
_OPEN = {
    "mfa_index",
    "mfa_activate_totp",
    "mfa_add_webauthn",
    "mfa_view_recovery_codes",
    "account_reauthenticate",
    "account_logout",
    "mfa_generate_recovery_codes",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
}


class SessionRulesMiddleware:
    """Ends sessions that are over, and leads people without a needed second factor to the page where they get one."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        answer: HttpResponseBase | Awaitable[HttpResponseBase] = self.get_response(request)
        return answer

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        """Return an answer instead of the view's, or None."""
        if not request.session.session_key or not isinstance(request.user, User):
            return None
        if not session_goes_on(request, request.user):
            logout(request)
            return None
        if not lacks_second_factor(request, request.user):
            return None
        match = request.resolver_match
        if match is not None and match.view_name in _OPEN:
            return None
        return _refusal(request)


def session_goes_on(request: HttpRequest, user: User) -> bool:
    """Say whether the session of the request may go on; its use is noted once a minute."""
    key = request.session.session_key or ""
    try:
        if not cache.add(f"session:{hashlib.sha256(key.encode()).hexdigest()}", 1, SEEN_SECONDS):
            return True
    except (RedisError, OSError) as error:
        log.warning("session_rules.cache_unreachable: %s", error)
    agent = request.META.get("HTTP_USER_AGENT", "")
    return session_seen(key=key, user=user, ip=facts_of(request).ip, agent=agent, now=timezone.now())


def session_moved(request: HttpRequest) -> None:
    """Keep the list of sessions true after the session's key has changed (a new password)."""
    UserSession.objects.create_from_request(request)


def lacks_second_factor(request: HttpRequest, user: User) -> bool:
    """Say whether the account needs a second factor and has none. Whoever signed in elsewhere answers for theirs."""
    if not needs_second_factor(settings.MFA_REQUIRED, user.site_role) or request.session.get(_HAS_FACTOR):
        return False
    methods = request.session.get(AUTHENTICATION_METHODS_SESSION_KEY) or []
    if not is_mfa_enabled(user) and all(one.get("method") != "socialaccount" for one in methods):
        return True
    request.session[_HAS_FACTOR] = True
    return False


def second_factor_sentence() -> str:
    """Return what somebody is told who has to set up a second factor first."""
    return _("Your account needs a second factor: add an authenticator app or a passkey to go on.")


def _refusal(request: HttpRequest) -> HttpResponseBase:
    sentence = second_factor_sentence()
    if request.path.startswith("/api/"):
        document = problem(403, sentence, code=SecondFactorRequired.code, request_id=facts_of(request).request_id)
        return JsonResponse(document, status=403, content_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})
    page = reverse("mfa_index")
    if request.headers.get("HX-Request"):
        return HttpResponse(status=403, headers={"HX-Redirect": page})
    messages.warning(request, sentence)
    return redirect(page)
