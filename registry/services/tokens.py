"""API tokens: make, change, rotate, revoke, recognise; and tell of those that end soon."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain import api_keys as domain
from registry.domain.actors import Actor
from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import ApiToken, Project, User
from registry.selectors.prepared import Prepared
from registry.services import audit
from registry.services.permissions import can, require
from registry.services.sealing import digest

_log = logging.getLogger(__name__)

PREFIX = "flo"
# Once a minute is exact enough and spares a write per request.
_USED_AT_STEP = timedelta(minutes=1)
# Tokens of CI jobs: one a job, of no interest afterwards; who used one is in the audit log.
_KEEP_JOB_TOKENS = timedelta(days=7)
_MOST_TOLD = 500
_BY_PUBLIC_ID = Prepared(
    lambda public_id: (
        ApiToken.objects.select_related("owner")
        .filter(Q(public_id=public_id) | Q(previous_public_id=public_id))
        .order_by("pk")[:1]
    )
)


@dataclass(frozen=True, slots=True)
class _Secret:
    """One secret: what the caller gets, and what is kept of it."""

    public_id: str
    sha256: str
    text: str


def token_create(
    *,
    owner: User,
    name: str,
    scopes: list[str],
    project: Project | None = None,
    expires_at: datetime | None = None,
    allowed_networks: Sequence[str] = (),
    actor: Actor,
) -> tuple[ApiToken, str]:
    """Create a bearer token and return it with its text ``flo_<id>_<secret>``, which is shown only this once.

    People make tokens for themselves; site administrators for service accounts.
    """
    _require_owner(actor, owner)
    if not owner.is_active:
        raise Conflict(_("The account is blocked; let it in again first."))
    if actor.only_project_id not in (None, project.id if project else None):
        raise PermissionDenied(_("A token of one project makes tokens of that project only."))
    if not scopes or any(scope not in domain.SCOPES for scope in scopes):
        raise _invalid("scopes", _("Scopes are any of: %(scopes)s.") % {"scopes": ", ".join(domain.SCOPES)})
    if project is not None and not can(Actor.person(owner), "project.view", project):
        raise _invalid("project", _("The account is not a member of this project."))
    token = ApiToken(
        owner=owner,
        created_by_id=actor.user_id,
        project=project,
        name=_name(name),
        scopes=sorted(set(scopes)),
        allowed_networks=_networks(allowed_networks),
        expires_at=_expiry(expires_at),
    )
    secret = _new_secret()
    token.public_id, token.secret_sha256 = secret.public_id, secret.sha256
    with transaction.atomic():
        token.save()
        audit.record(actor=actor, action="token.create", obj=token, after={"owner": owner.username, **_facts(token)})
    return token, secret.text


def token_update(*, token: ApiToken, actor: Actor, **changes: Any) -> ApiToken:
    """Change what is given of ``name``, ``allowed_networks`` and ``expires_at``; the secret stays.

    Raises:
        Conflict: it is revoked, or of a CI job.
    """
    _require_owner(actor, token.owner)
    with transaction.atomic():
        locked = _locked(token)
        before = _facts(locked)
        if "name" in changes:
            locked.name = _name(changes["name"])
        if "allowed_networks" in changes:
            locked.allowed_networks = _networks(changes["allowed_networks"])
        if "expires_at" in changes and changes["expires_at"] != locked.expires_at:
            locked.expires_at, locked.expiry_told_at = _expiry(changes["expires_at"]), None
        if before != _facts(locked):
            locked.save(update_fields=["name", "allowed_networks", "expires_at", "expiry_told_at"])
            audit.record(actor=actor, action="token.update", obj=locked, before=before, after=_facts(locked))
    return locked


def token_rotate(
    *, token: ApiToken, overlap: timedelta = timedelta(days=1), actor: Actor, **changes: Any
) -> tuple[ApiToken, str]:
    """Give a token a new secret and return its text; the present one works for ``overlap`` beside it.

    A secret that was still valid from an earlier rotation ends at once. ``expires_at`` may be given, as in an update.

    Raises:
        Conflict: the token is revoked, has expired, or is of a CI job.
    """
    _require_owner(actor, token.owner)
    if not timedelta() <= overlap <= domain.MAX_OVERLAP:
        hours = {"hours": domain.MAX_OVERLAP // timedelta(hours=1)}
        raise _invalid("overlap_hours", _("The old secret may work for 0 to %(hours)d hours.") % hours)
    secret, now = _new_secret(), timezone.now()
    with transaction.atomic():
        locked = _locked(token)
        if locked.expires_at is not None and locked.expires_at <= now:
            raise Conflict(_("The token has expired; make a new one."))
        before = _facts(locked)
        wanted = _expiry(changes.get("expires_at", locked.expires_at))
        if wanted != locked.expires_at:
            locked.expires_at, locked.expiry_told_at = wanted, None
        locked.previous_public_id, locked.previous_secret_sha256 = locked.public_id, locked.secret_sha256
        locked.previous_until, locked.previous_used_at = now + overlap, None
        locked.public_id, locked.secret_sha256, locked.rotated_at = secret.public_id, secret.sha256, now
        locked.save()
        after = {**_facts(locked), "previous_until": locked.previous_until.isoformat()}
        audit.record(actor=actor, action="token.rotate", obj=locked, before=before, after=after)
    return locked, secret.text


def token_revoke(*, token: ApiToken, actor: Actor) -> None:
    """Revoke a token, with both its secrets, for good; again changes nothing. Each token may revoke itself,
    and site administrators every one.
    """
    if actor.token_id != token.id and (actor.user_id != token.owner_id or not actor.has_scope("admin")):
        require(actor, "site.users")
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record(actor=actor, action="token.revoke", obj=token, before=_facts(token))
    token.refresh_from_db()


def tokens_revoke_all(owner: User, now: datetime) -> int:
    """Revoke every token of an account and return how many. Call it where that is allowed, with an audit."""
    return ApiToken.objects.filter(owner=owner, revoked_at=None).update(revoked_at=now)


def token_authenticate(text: str, *, ip: str | None = None, now: datetime | None = None) -> ApiToken | None:
    """Return the token (with its owner) for a bearer text; None when unknown, revoked, expired or owner inactive.

    Raises:
        PermissionDenied: the token is good, but not for callers from ``ip``.
    """
    now = now or timezone.now()
    prefix, _one, rest = text.partition("_")
    public_id, _two, own_secret = rest.partition("_")
    if prefix != PREFIX or not own_secret or "\x00" in public_id:
        return None
    token = next(iter(_BY_PUBLIC_ID(public_id=public_id)), None)
    if token is None:
        return None
    is_new = token.public_id == public_id
    kept = token.secret_sha256 if is_new else token.previous_secret_sha256
    if not hmac.compare_digest(kept, digest(own_secret)):
        return None
    if not is_new and (token.previous_until is None or token.previous_until <= now):
        return None
    if token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= now):
        return None
    if not token.owner.is_active:
        return None
    if not domain.is_allowed(ip, token.allowed_networks):
        _log.warning("token.refused_address public_id=%s ip=%s", public_id, ip)
        raise PermissionDenied(_("This key may not be used from %(ip)s.") % {"ip": ip or _("here")})
    _note_use(token, ip, now, is_new)
    return token


def tokens_tell_expiry(now: datetime) -> int:
    """Write an audit event, which webhooks get, for each token that ends soon, once; return how many.

    Part of tidying up, so an end is told within minutes of its time.
    """
    soon = ApiToken.objects.filter(revoked_at=None, expiry_told_at=None, owner__is_active=True)
    told = 0
    for token in soon.filter(expires_at__gt=now, expires_at__lte=now + domain.TELL_BEFORE)[:_MOST_TOLD]:
        begun = token.rotated_at or token.created_at
        if token.expires_at is None or not domain.is_end_near(begun, token.expires_at, now):
            continue
        with transaction.atomic():
            if not ApiToken.objects.filter(pk=token.pk, expiry_told_at=None).update(expiry_told_at=now):
                continue
            audit.record(
                actor=Actor.system("clock"),
                action="project_token.expires_soon" if token.project_id else "token.expires_soon",
                obj=token,
                after={"owner": token.owner.username, "expires_at": token.expires_at.isoformat()},
            )
        told += 1
    return told


def job_tokens_purge(now: datetime) -> int:
    """Delete tokens of CI jobs that ended a while ago and return how many."""
    past = ApiToken.objects.filter(expires_at__lt=now - _KEEP_JOB_TOKENS).exclude(actor_name="")
    return past.delete()[0]


def job_token_create(
    *, owner: User, project: Project, name: str, actor_name: str, scopes: Sequence[str], expires_at: datetime, rule: Any
) -> tuple[ApiToken, str]:
    """Create the token of one CI job and return it with its text. Call it where the job was proven, with an audit."""
    secret = _new_secret()
    token = ApiToken.objects.create(
        owner=owner,
        project=project,
        name=name[:200],
        actor_name=actor_name[:200],
        public_id=secret.public_id,
        secret_sha256=secret.sha256,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        trust_rule=rule,
    )
    return token, secret.text


def _note_use(token: ApiToken, ip: str | None, now: datetime, is_new: bool) -> None:
    """Note time and address of a use, at most once a minute for each secret and at once from another address."""
    changes: dict[str, Any] = {}
    if token.last_used_at is None or now - token.last_used_at > _USED_AT_STEP or token.last_used_ip != ip:
        changes |= {"last_used_at": now, "last_used_ip": ip}
    if not is_new and (token.previous_used_at is None or now - token.previous_used_at > _USED_AT_STEP):
        changes["previous_used_at"] = now
    if changes:
        ApiToken.objects.filter(pk=token.pk).update(**changes)


def _require_owner(actor: Actor, owner: User) -> None:
    """Let people manage their own tokens, and site administrators those of service accounts."""
    if actor.user_id == owner.id:
        if not actor.has_scope("admin"):
            raise PermissionDenied(_("The token used lacks the scope “admin”."))
        return
    require(actor, "site.users")
    if not owner.is_service and not actor.is_system:
        raise PermissionDenied(_("Only people themselves manage the tokens of their accounts."))


def _locked(token: ApiToken) -> ApiToken:
    locked = ApiToken.objects.select_for_update(of=("self",), no_key=True).select_related("owner").get(pk=token.pk)
    if locked.revoked_at is not None:
        raise Conflict(_("The token is revoked."))
    if locked.actor_name:
        raise Conflict(_("The token belongs to a CI job and ends with it."))
    return locked


def _new_secret() -> _Secret:
    public_id = secrets.token_hex(8)
    secret = secrets.token_urlsafe(32).replace("_", "-")
    return _Secret(public_id, digest(secret), f"{PREFIX}_{public_id}_{secret}")


def _name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > 200:
        raise _invalid("name", _("Give the token a name of at most 200 characters."))
    return name


def _networks(networks: Sequence[str]) -> list[str]:
    if len(networks) > domain.MAX_NETWORKS:
        raise _invalid("allowed_networks", _("At most %(limit)d ranges.") % {"limit": domain.MAX_NETWORKS})
    for text in networks:
        problem = domain.network_problem(text)
        if problem:
            raise _invalid("allowed_networks", problem)
    return list(dict.fromkeys(networks))


def _expiry(expires_at: datetime | None) -> datetime | None:
    problem = domain.expiry_problem(expires_at, now=timezone.now(), max_days=settings.TOKEN_MAX_DAYS)
    if problem:
        raise _invalid("expires_at", problem)
    return expires_at


def _facts(token: ApiToken) -> dict[str, Any]:
    return {
        "name": token.name,
        "public_id": token.public_id,
        "scopes": token.scopes,
        "allowed_networks": token.allowed_networks,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
    }


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
