"""Our decisions inside django-allauth: no self sign-up, whose address counts, how secrets rest, what is recorded."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.identity.reauthentication import is_recent
from console.middleware.request_context import facts_of
from registry.domain.sign_in import needs_second_factor
from registry.models import User
from registry.services.sealing import seal, unseal
from registry.services.sign_ins import sign_in_failed

# Said by the page that one arrives at.
_SILENT = {"account/messages/logged_in.txt", "account/messages/logged_out.txt"}


def password_link(key: str) -> str:
    """Return the address where a new password is set; ``key`` is ``<user>-<token>``. It works once."""
    path = reverse("account_reset_password_from_key", kwargs={"uidb36": "UID", "key": "KEY"})
    return settings.PUBLIC_URL + path.replace("UID-KEY", quote(key))


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Signing in with a name and a password."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Nobody makes an account for themselves."""
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the address behind the trusted proxies."""
        return facts_of(request).ip or "0.0.0.0"  # noqa: S104

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Do nothing: console.identity.login_limit has counted the try."""

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Record the failure."""
        facts = facts_of(request)
        username = credentials.get("username", "")
        sign_in_failed(username=username, method="password", ip=facts.ip, request_id=facts.request_id)

    def is_reauthentication_required(self, *, app: str, **kwargs: Any) -> bool:
        """Ask again unless somebody has signed in or confirmed a short while ago."""
        return not is_recent(self.request)

    def get_reset_password_from_key_url(self, key: str) -> str:
        """Return the address for mails: of our own host, whatever the request's says."""
        return password_link(key)

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        """Say that the account is blocked."""
        sentence = _("This account is blocked. Ask an administrator of the site.")
        return render(request, "web/entrance/notice.html", {"sentence": sentence}, status=403)

    def add_message(
        self, request: HttpRequest, level: int, message_template: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Show a message, except where the page itself says it."""
        if message_template not in _SILENT:
            super().add_message(request, level, message_template, *args, **kwargs)


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Authenticator apps, passkeys and recovery codes."""

    def encrypt(self, text: str) -> str:
        """Seal a secret for its column."""
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Open a sealed secret."""
        return unseal(encrypted_text)

    def get_totp_label(self, user: User) -> str:
        """Return what authenticator apps show beside the codes."""
        return user.username

    def can_delete_authenticator(self, authenticator: Any) -> bool:
        """Keep the last second factor of somebody who needs one."""
        others = Authenticator.objects.filter(user_id=authenticator.user_id).exclude(pk=authenticator.pk)
        has_other = others.exclude(type=Authenticator.Type.RECOVERY_CODES).exists()
        return has_other or not needs_second_factor(settings.MFA_REQUIRED, authenticator.user.site_role)
