"""What django-allauth says happens, as rows of the audit log. Connected when the app is ready."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.signals import password_reset, user_logged_in
from allauth.mfa import signals as mfa
from allauth.socialaccount.signals import social_account_added
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest

from console.middleware.request_context import facts_of
from registry.domain.actors import Actor
from registry.models import User
from registry.services import sign_ins, sso_sign_in


def _actor(request: HttpRequest, user: User) -> Actor:
    facts = facts_of(request)
    return Actor.person(user, ip=facts.ip, request_id=facts.request_id)


@receiver(user_logged_in)
def on_sign_in(request: HttpRequest, user: User, **_named: Any) -> None:
    """Record a sign-in with what it took."""
    methods = [record["method"] for record in get_authentication_records(request, user)]
    sign_ins.sign_in_record(user=user, methods=methods, actor=_actor(request, user))


@receiver(user_logged_out)
def on_sign_out(request: HttpRequest, user: User | None, **_named: Any) -> None:
    """Record a sign-out."""
    if user is not None:
        sign_ins.sign_out_record(user=user, actor=_actor(request, user))


@receiver(password_reset)
def on_password_reset(request: HttpRequest, user: User, **_named: Any) -> None:
    """Record a password set by a link."""
    sign_ins.password_reset_record(user=user, actor=_actor(request, user))


@receiver(mfa.authentication_failed)
def on_second_factor_failed(request: HttpRequest, user: User, **_named: Any) -> None:
    """Record a wrong code."""
    facts = facts_of(request)
    sign_ins.sign_in_failed(username=user.username, method="mfa", ip=facts.ip, request_id=facts.request_id)


@receiver(mfa.authenticator_added)
def on_added(request: HttpRequest, user: User, authenticator: Any, **_named: Any) -> None:
    """Record a new second factor."""
    sign_ins.second_factor_changed(user=user, change="added", kind=authenticator.type, actor=_actor(request, user))


@receiver(mfa.authenticator_removed)
def on_removed(request: HttpRequest, user: User, authenticator: Any, **_named: Any) -> None:
    """Record a second factor that is gone."""
    sign_ins.second_factor_changed(user=user, change="removed", kind=authenticator.type, actor=_actor(request, user))


@receiver(mfa.authenticator_reset)
def on_renewed(request: HttpRequest, user: User, authenticator: Any, **_named: Any) -> None:
    """Record new recovery codes."""
    sign_ins.second_factor_changed(user=user, change="renewed", kind=authenticator.type, actor=_actor(request, user))


@receiver(social_account_added)
def on_linked(request: HttpRequest, sociallogin: Any, **_named: Any) -> None:
    """Record that an account signs in elsewhere too."""
    user = sociallogin.user
    sso_sign_in.identity_linked(user=user, provider=sociallogin.account.provider, actor=_actor(request, user))
