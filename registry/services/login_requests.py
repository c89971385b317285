"""Sign-in of command lines: ask, be confirmed by a person in the console, fetch one token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.api_keys import SCOPES
from registry.domain.login_codes import MAX_TOKEN_DAYS, VALID, new_code
from registry.errors import Conflict, NotFound, PermissionDenied, QuotaExceeded, ValidationFailed
from registry.models import ApiToken, LoginRequest, LoginState, Project, User
from registry.services import audit
from registry.services.permissions import require
from registry.services.sealing import digest
from registry.services.tokens import token_create
from registry.services.transition import move

# So many may wait at once, from one address and in all: a stranger can ask.
MAX_WAITING_OF_ADDRESS = 20
MAX_WAITING = 2000
_KEPT = timedelta(days=1)
_TRIES = 5


def login_ask(
    *, client: str, scopes: Sequence[str], project: str = "", token_days: int = 30, ip: str | None
) -> tuple[LoginRequest, str]:
    """Note that a command line wants a token and return the request with the secret that fetches it.

    Anybody may ask; nothing is given before a person confirms the code.

    Raises:
        ValidationFailed: unknown scopes, too many days.
        QuotaExceeded: too many wait already.
    """
    if not scopes or any(scope not in SCOPES for scope in scopes):
        raise _invalid("scopes", _("Scopes are any of: %(scopes)s.") % {"scopes": ", ".join(SCOPES)})
    most = min(MAX_TOKEN_DAYS, settings.TOKEN_MAX_DAYS or MAX_TOKEN_DAYS)
    if not 1 <= token_days <= MAX_TOKEN_DAYS:
        raise _invalid("token_days", _("A token lasts 1 to %(most)d days.") % {"most": most})
    now = timezone.now()
    waiting = LoginRequest.objects.filter(state=LoginState.WAITING, expires_at__gt=now)
    if waiting.filter(ip=ip).count() >= MAX_WAITING_OF_ADDRESS or waiting.count() >= MAX_WAITING:
        raise QuotaExceeded(_("Too many sign-ins wait for their confirmation; try again in some minutes."))
    secret = secrets.token_urlsafe(32)
    for _attempt in range(_TRIES):
        try:
            with transaction.atomic():
                return LoginRequest.objects.create(
                    user_code=new_code(secrets.choice),
                    secret_sha256=digest(secret),
                    client=client.strip()[:200] or _("a command line"),
                    ip=ip,
                    scopes=sorted(set(scopes)),
                    project_slug=project,
                    token_days=min(token_days, most),
                    expires_at=now + VALID,
                ), secret
        except IntegrityError:
            continue  # the same code again, once in 25 thousand million
    raise QuotaExceeded(_("No free code was found; try again."))


def login_decide(*, request: LoginRequest, grant: bool, actor: Actor) -> None:
    """Grant what is asked for, or deny it. Only a person who is signed in, never a token.

    Raises:
        PermissionDenied: the caller is no person, or is not a member of the project.
        Conflict: the code has run out.
        InvalidTransition: somebody decided already.
    """
    if actor.user is None or actor.user.is_service or actor.token is not None:
        raise PermissionDenied(_("Only a person who is signed in may confirm this."))
    if request.expires_at <= timezone.now():
        raise _run_out()
    if grant and request.project_slug:
        require(actor, "project.view", _project(request))
    to = LoginState.GRANTED if grant else LoginState.DENIED
    with transaction.atomic():
        move(request, "state", to, cause=f"{to} by {actor.name}", actor=actor, decided_by_id=actor.user_id)
        audit.record(actor=actor, action=f"login.{to}", obj=request, after=_facts(request))


def login_claim(*, secret: str, ip: str | None, request_id: str = "") -> tuple[ApiToken, str] | None:
    """Return the token and its text, once; None while nobody has decided.

    Raises:
        NotFound: there is no such request.
        PermissionDenied: it was denied.
        Conflict: the code has run out, or the token was fetched already.
    """
    request = LoginRequest.objects.select_related("decided_by").filter(secret_sha256=digest(secret)).first()
    if request is None or not hmac.compare_digest(request.secret_sha256, digest(secret)):
        raise NotFound(_("There is no such sign-in."))
    if request.state == LoginState.CLAIMED:
        raise Conflict(_("The token of this sign-in was fetched already."))
    if request.state == LoginState.DENIED:
        raise PermissionDenied(_("The sign-in was denied in the console."))
    if request.expires_at <= timezone.now():
        raise _run_out()
    if request.state == LoginState.WAITING:
        return None
    owner: User | None = request.decided_by
    if owner is None or not owner.is_active:
        raise PermissionDenied(_("The account that confirmed this sign-in is blocked."))
    actor = Actor.person(owner, ip=ip, request_id=request_id)
    with transaction.atomic():
        move(request, "state", LoginState.CLAIMED, cause="fetched", actor=actor)
        token, text = token_create(
            owner=owner,
            name=_("flotilla on %(client)s") % {"client": request.client[:180]},
            scopes=list(request.scopes),
            project=_project(request) if request.project_slug else None,
            expires_at=timezone.now() + timedelta(days=request.token_days),
            actor=actor,
        )
        LoginRequest.objects.filter(pk=request.pk).update(token=token)
    return token, text


def login_requests_purge(now: datetime) -> int:
    """Delete requests that ended a day ago and return how many."""
    deleted, _by_model = LoginRequest.objects.filter(expires_at__lt=now - _KEPT).delete()
    return deleted


def _project(request: LoginRequest) -> Project:
    project = Project.objects.filter(slug=request.project_slug).first()
    if project is None:
        raise NotFound(_("There is no project “%(slug)s”.") % {"slug": request.project_slug})
    return project


def _run_out() -> Conflict:
    return Conflict(_("This code has run out; start the sign-in again."))


def _facts(request: LoginRequest) -> dict[str, object]:
    return {
        "client": request.client,
        "ip": request.ip,
        "scopes": request.scopes,
        "project": request.project_slug,
        "token_days": request.token_days,
    }


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
