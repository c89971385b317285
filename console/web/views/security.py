"""Settings: how one signs in (second factors, passkeys) and where one is signed in."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter as account_adapter
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes import views as codes
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as webauthn
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.identity.reauthentication import sensitive
from console.identity.session_rules import lacks_second_factor
from console.web import equivalents
from console.web.forms import session as forms
from console.web.page import actor_of, frame_of, page, render_page, user_of
from registry.domain.sign_in import needs_second_factor
from registry.selectors import sessions as selectors
from registry.selectors.sso import identities_of, providers_offered
from registry.services import sessions as services
from registry.services import sso_sign_in as sso_services

_LIST = reverse_lazy("mfa_index")


@require_GET
@page
def security(request: HttpRequest) -> HttpResponse:
    """Password, second factors, sessions."""
    user = user_of(request)
    factors = [(one, one.wrap()) for one in Authenticator.objects.filter(user=user).order_by("created_at", "pk")]
    by_kind: dict[str, list[Any]] = {}
    for one, wrapped in factors:
        by_kind.setdefault(one.type, []).append((one, wrapped))
    identities = identities_of(user)
    linked = {row.provider for row, _provider in identities}
    context = {
        "section": "security",
        "app": next(iter(by_kind.get("totp", [])), None),
        "passkeys": by_kind.get("webauthn", []),
        "codes": next((len(wrapped.get_unused_codes()) for _one, wrapped in by_kind.get("recovery_codes", [])), None),
        "is_needed": needs_second_factor(settings.MFA_REQUIRED, user.site_role),
        "is_missing": lacks_second_factor(request, user),
        "may_use_passkeys": request.is_secure() or request.get_host().partition(":")[0] == "localhost",
        "identities": identities,
        "connectable": [one for one in providers_offered() if one.slug not in linked],
        "sessions": list(selectors.sessions_of(user)),
        "session_key": request.session.session_key,
        "session_hours": settings.SESSION_HOURS,
        "idle_hours": settings.SESSION_IDLE_HOURS,
        "curl": equivalents.curl("GET", f"users/{user.username}/sessions/"),
    }
    return render_page(request, "web/settings/security.html", context, current="settings")


@require_POST
@page
def session_end(request: HttpRequest) -> HttpResponse:
    """End one session of one's own, or all others."""
    user, actor = user_of(request), actor_of(request)
    wanted = request.POST.get("session", "")
    if wanted == "others":
        ended = services.sessions_end(user=user, actor=actor, except_key=request.session.session_key or "")
        messages.success(request, _("%(count)d other sessions are ended.") % {"count": ended})
        return redirect("mfa_index")
    session = selectors.session_get(actor, user, int(wanted) if wanted.isdigit() else 0)
    is_own = session.session_key == request.session.session_key
    services.session_end(session=session, actor=actor)
    if is_own:
        logout(request)
        return redirect("account_login")
    messages.success(request, _("The session is ended."))
    return redirect("mfa_index")


@require_POST
@page
@sensitive()
def identity_unlink(request: HttpRequest) -> HttpResponse:
    """Disconnect a provider from one's account."""
    wanted = request.POST.get("identity", "")
    identity_id = int(wanted) if wanted.isdigit() else 0
    sso_services.identity_unlink(user=user_of(request), identity_id=identity_id, actor=actor_of(request))
    messages.success(request, _("It is disconnected."))
    return redirect("mfa_index")


class _Framed:
    """The frame around a page of django-allauth."""

    request: HttpRequest

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)  # type: ignore[misc]
        return {**context, "frame": frame_of(self.request, None, "settings"), "section": "security"}

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        """Keep what may show a secret out of every cache."""
        answer: HttpResponse = super().render_to_response(context, **kwargs)  # type: ignore[misc]
        answer.headers["Cache-Control"] = "no-store"
        return answer


class AppAdd(_Framed, totp.ActivateTOTPView):  # type: ignore[misc]
    """Add an authenticator app."""

    template_name = "web/settings/security_app.html"
    form_class = forms.AppForm


class AppRemove(_Framed, totp.DeactivateTOTPView):  # type: ignore[misc]
    """Remove the authenticator app."""

    template_name = "web/settings/security_remove.html"
    success_url = _LIST


class PasskeyAdd(_Framed, webauthn.AddWebAuthnView):  # type: ignore[misc]
    """Add a passkey."""

    template_name = "web/settings/security_passkey.html"
    form_class = forms.PasskeyForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data()
        # The view of the library forgets a form that was refused.
        return {**context, **kwargs}


class PasskeyRemove(_Framed, webauthn.RemoveWebAuthnView):  # type: ignore[misc]
    """Remove a passkey."""

    template_name = "web/settings/security_remove.html"
    success_url = _LIST

    def form_valid(self, form: Any) -> HttpResponse:
        """Remove it, unless it is the last second factor of somebody who needs one."""
        if not get_adapter().can_delete_authenticator(self.get_object()):
            sentence = _("This is your last second factor, and your account needs one. Add another first.")
            account_adapter().add_message(self.request, messages.ERROR, message=sentence)
            return redirect("mfa_index")
        answer: HttpResponse = super().form_valid(form)
        return answer


class Codes(_Framed, codes.ViewRecoveryCodesView):  # type: ignore[misc]
    """The recovery codes: shown once."""

    template_name = "web/settings/security_codes.html"


class CodesRenew(_Framed, codes.GenerateRecoveryCodesView):  # type: ignore[misc]
    """New recovery codes in place of the old ones."""

    template_name = "web/settings/security_codes_renew.html"
