"""The pages before one is inside: signing in, the second factor, confirming who one is, a new password.

The views are django-allauth's with our forms and templates.
"""

from __future__ import annotations

from typing import Any

from allauth.account import views as account
from allauth.account.adapter import get_adapter
from allauth.mfa.base import views as mfa
from allauth.mfa.webauthn import views as webauthn
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse_lazy

from console.identity.sso import END_SESSION
from console.web.forms import session as forms
from console.web.views.sso import leaving
from registry.selectors.sso import providers_offered


class SignIn(account.LoginView):  # type: ignore[misc]
    """The sign-in page. A wrong password and an unknown name give the same answer."""

    template_name = "web/entrance/login.html"
    form_class = forms.SignInForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {
            **super().get_context_data(**kwargs),
            "has_mail": bool(settings.EMAIL_HOST),
            "providers": list(providers_offered()),
        }


class SignOut(account.LogoutView):  # type: ignore[misc]
    """Sign out; only by a form of our own pages."""

    http_method_names = ["post", "options"]

    def post(self, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """End the session here, and at the provider by which it began."""
        elsewhere = self.request.session.get(END_SESSION, "")
        answer: HttpResponseBase = super().post(*args, **kwargs)
        return leaving(self.request, elsewhere) if elsewhere else answer


class SecondFactor(mfa.AuthenticateView):  # type: ignore[misc]
    """After the password: a code or a passkey."""

    template_name = "web/entrance/factor.html"
    form_class = forms.CodeForm


class PasskeySignIn(webauthn.LoginWebAuthnView):  # type: ignore[misc]
    """Signing in with a passkey alone. The page's script reads the challenge here and posts the answer."""


class Confirm(account.ReauthenticateView):  # type: ignore[misc]
    """Confirm who one is by the password."""

    template_name = "web/entrance/confirm.html"
    form_class = forms.ConfirmForm


class ConfirmByCode(mfa.ReauthenticateView):  # type: ignore[misc]
    """Confirm who one is by a code."""

    template_name = "web/entrance/confirm.html"
    form_class = forms.ConfirmByCodeForm


class ConfirmByPasskey(webauthn.ReauthenticateWebAuthnView):  # type: ignore[misc]
    """Confirm who one is by a passkey."""

    template_name = "web/entrance/confirm.html"

    def form_invalid(self, form: Any) -> HttpResponseRedirect:
        """Show why, on the same page."""
        for message in form.errors.get("credential", []):
            get_adapter().add_message(self.request, 40, message=message)
        return HttpResponseRedirect(self.request.get_full_path())


class Forgot(account.PasswordResetView):  # type: ignore[misc]
    """Ask for a link by mail. Known and unknown addresses give the same answer."""

    template_name = "web/entrance/forgot.html"
    form_class = forms.ForgotForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Serve it only where mail can be sent."""
        if not settings.EMAIL_HOST:
            raise Http404
        answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return answer


class ForgotSent(account.PasswordResetDoneView):  # type: ignore[misc]
    """The link is on its way, if the address is somebody's."""

    template_name = "web/entrance/forgot_sent.html"


class NewPassword(account.PasswordResetFromKeyView):  # type: ignore[misc]
    """Set a new password by a link that works once."""

    template_name = "web/entrance/new_password.html"
    form_class = forms.NewPasswordForm
    success_url = reverse_lazy("account_reset_password_from_key_done")


class NewPasswordDone(account.PasswordResetFromKeyDoneView):  # type: ignore[misc]
    """It is set."""

    template_name = "web/entrance/new_password_done.html"
