"""System checks: settings that would make the console unsafe or broken, said before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.http.request import validate_host
from django.utils.translation import gettext as _

from registry.domain.addresses import parse_networks
from registry.domain.sign_in import MFA_POLICIES

INSECURE_KEY = "insecure-only-for-commands-without-a-server"


@register(Tags.security)
def check_trusted_proxies(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.E001 when a trusted proxy is neither an address nor a range."""
    try:
        parse_networks(settings.TRUSTED_PROXIES)
    except ValueError as error:
        hint = _("Set FLOTILLA_TRUSTED_PROXIES to addresses or ranges such as 10.0.0.0/8, separated by commas.")
        return [Error(str(error), hint=hint, id="console.E001")]
    return []


@register(Tags.security)
def check_public_url(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.E002 when the console would refuse requests to its own public address."""
    host = urlsplit(settings.PUBLIC_URL).hostname or ""
    host = f"[{host}]" if ":" in host else host
    if validate_host(host, settings.ALLOWED_HOSTS):
        return []
    message = _("The host of FLOTILLA_PUBLIC_URL, %(host)s, is not in FLOTILLA_ALLOWED_HOSTS.") % {"host": host}
    return [Error(message, id="console.E002")]


@register(Tags.security, deploy=True)
def check_secret_key(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.W001 when the built-in key is used: sessions and node secrets could be forged."""
    if settings.SECRET_KEY != INSECURE_KEY:
        return []
    hint = _("Set FLOTILLA_SECRET_KEY_FILE to a file with a random secret, mode 0600.")
    return [Warning(_("The secret key is the built-in one."), hint=hint, id="console.W001")]


@register(Tags.caches)
def check_uploads(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.E003 when uploads could never be accepted, or would be collected before a version holds them."""
    if settings.MAX_UPLOAD_BYTES > 0 and settings.UPLOAD_EXPIRY_HOURS > 0 and settings.BLOB_GRACE_HOURS > 0:
        return []
    message = _(
        "FLOTILLA_MAX_UPLOAD_BYTES, FLOTILLA_UPLOAD_EXPIRY_HOURS and FLOTILLA_BLOB_GRACE_HOURS must be positive."
    )
    return [Error(message, id="console.E003")]


@register(Tags.security)
def check_webhook_networks(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.E004 when a network that webhooks may call is neither an address nor a range."""
    try:
        parse_networks(settings.WEBHOOK_ALLOWED_NETWORKS)
    except ValueError as error:
        hint = _("Set FLOTILLA_WEBHOOK_ALLOWED_NETWORKS to addresses or ranges such as 10.1.0.0/16, with commas.")
        return [Error(str(error), hint=hint, id="console.E004")]
    return []


@register(Tags.security)
def check_sso_networks(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.E007 when a network of single sign-on is neither an address nor a range."""
    try:
        parse_networks(settings.SSO_ALLOWED_NETWORKS)
    except ValueError as error:
        hint = _("Set FLOTILLA_SSO_ALLOWED_NETWORKS to addresses or ranges such as 10.1.0.0/16, with commas.")
        return [Error(str(error), hint=hint, id="console.E007")]
    return []


@register(Tags.security)
def check_sign_in(app_configs: Sequence[Any] | None, **_kwargs: Any) -> list[CheckMessage]:
    """Return console.E005 for a rule about second factors that is none, console.E006 for sessions without length."""
    found: list[CheckMessage] = []
    if settings.MFA_REQUIRED not in MFA_POLICIES:
        message = _("FLOTILLA_MFA_REQUIRED must be one of: %(known)s.") % {"known": ", ".join(MFA_POLICIES)}
        found.append(Error(message, id="console.E005"))
    if settings.SESSION_HOURS <= 0 or settings.SESSION_IDLE_HOURS <= 0:
        message = _("FLOTILLA_SESSION_HOURS and FLOTILLA_SESSION_IDLE_HOURS must be positive.")
        found.append(Error(message, id="console.E006"))
    return found
