"""Tokens with which an identity provider keeps accounts here (SCIM)."""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import ValidationFailed
from registry.models import ScimToken, SsoProvider
from registry.services import audit
from registry.services.permissions import require
from registry.services.sealing import digest

PREFIX = "scim"
_USED_AT_STEP = timedelta(minutes=1)


def scim_token_create(*, name: str, provider: SsoProvider | None = None, actor: Actor) -> tuple[ScimToken, str]:
    """Make a token and return it with its text ``scim_<id>_<secret>``, shown only this once. Site admins only."""
    require(actor, "site.users")
    if not name.strip() or len(name) > 100:
        message = _("Give the token a name of at most 100 characters.")
        raise ValidationFailed(message, errors=[{"field": "name", "message": message}])
    secret = secrets.token_urlsafe(32).replace("_", "-")
    with transaction.atomic():
        token = ScimToken.objects.create(
            name=name.strip(),
            provider=provider,
            created_by_id=actor.user_id,
            public_id=secrets.token_hex(8),
            secret_sha256=digest(secret),
        )
        facts = {"name": token.name, "provider": provider.slug if provider is not None else None}
        audit.record(actor=actor, action="scim_token.create", obj=token, after=facts)
    return token, f"{PREFIX}_{token.public_id}_{secret}"


def scim_token_revoke(*, token: ScimToken, actor: Actor) -> None:
    """Revoke a token for good; doing it again changes nothing."""
    require(actor, "site.users")
    with transaction.atomic():
        if ScimToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(actor=actor, action="scim_token.revoke", obj=token)
    token.refresh_from_db()


def scim_authenticate(text: str, *, now: datetime) -> ScimToken | None:
    """Return the token of a bearer text; None when it is unknown or revoked."""
    prefix, _one, rest = text.partition("_")
    public_id, _two, secret = rest.partition("_")
    tokens = ScimToken.objects.select_related("provider")
    token = tokens.filter(public_id=public_id, revoked_at=None).first() if prefix == PREFIX else None
    if token is None or not secret or not hmac.compare_digest(token.secret_sha256, digest(secret)):
        return None
    if token.last_used_at is None or now - token.last_used_at > _USED_AT_STEP:
        ScimToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token
