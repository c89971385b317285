"""CI without secrets: a job's token of its issuer for a short one of ours, once, under a project's rule."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain import ci_trust as domain
from registry.domain.actors import Actor
from registry.errors import InvalidToken, PermissionDenied, ValidationFailed
from registry.models import ApiToken, Issuer, IssuerTokenUse, TrustRule
from registry.selectors.trust import audience
from registry.services import audit
from registry.services.issuer_keys import key_of
from registry.services.tokens import job_token_create

_LEAST_RSA_BITS = 2048
_LONGEST_JTI = 500
_MOST_NAMED = 3
_REQUIRED = ["iss", "aud", "exp", "iat", "jti"]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a job gets: the row of its token, the text of it, and the rule that gave it."""

    token: ApiToken
    text: str
    rule: TrustRule


def token_exchange(
    *, assertion: str, project: str = "", rule: str = "", ip: str | None = None, request_id: str = ""
) -> Exchanged:
    """Return a token of ours for a CI job's token of its issuer. The caller needs no other proof.

    ``project`` and ``rule`` (a name) narrow what is looked at; they are needed where several rules fit the job.

    Raises:
        InvalidToken: it is not signed by a known issuer, not for this installation, too old, or was used before.
        PermissionDenied: no rule fits; where rules are about the job's own repository, why each does not.
        ValidationFailed: several rules fit.
        IssuerUnavailable: the issuer's keys cannot be read.
    """
    now = timezone.now()
    issuer, claims = _verified(assertion, now)
    try:
        job = domain.job_of(issuer.kind, claims)
    except ValueError as error:
        raise InvalidToken(_("The token lacks the claim “%(claim)s”.") % {"claim": error}) from None
    with transaction.atomic():
        chosen = _chosen(_candidates(issuer, project, rule, job), job)
        _use_once(issuer, claims)
        account = chosen.service_account
        expires_at = now + timedelta(minutes=chosen.lifetime_minutes)
        token, text = job_token_create(
            owner=account,
            project=chosen.project,
            name=f"{job.path} {job.run}".strip() or chosen.name,
            actor_name=domain.actor_name(job, account.username),
            scopes=chosen.scopes,
            expires_at=expires_at,
            rule=chosen,
        )
        TrustRule.objects.filter(pk=chosen.pk).update(last_used_at=now)
        audit.record(
            actor=Actor.person(account, token=token, ip=ip, request_id=request_id),
            action="trust_rule.exchange",
            obj=chosen,
            after={**_shown(claims), "token": token.public_id, "expires_at": expires_at.isoformat()},
        )
    return Exchanged(token, text, chosen)


def issuer_uses_purge(now: datetime) -> int:
    """Forget tokens of issuers that are too old to be used again, and return how many."""
    return IssuerTokenUse.objects.filter(expires_at__lt=now - 2 * domain.LEEWAY).delete()[0]


def _verified(assertion: str, now: datetime) -> tuple[Issuer, dict[str, Any]]:
    """Return the issuer of a token and its claims, all checked."""
    if len(assertion) > domain.MAX_ASSERTION_BYTES:
        raise InvalidToken(_("The token is too long."))
    try:
        header = jwt.get_unverified_header(assertion)
        named = jwt.decode(assertion, options={"verify_signature": False}).get("iss")
    except (jwt.InvalidTokenError, ValueError, RecursionError):  # also parts that are nested without end
        raise InvalidToken(_("This is no JSON Web Token.")) from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in domain.ALGORITHMS or not isinstance(kid, str):
        raise InvalidToken(_("The token must be signed with RS256 or ES256 and name its key."))
    # What is no such text is no address either, and nothing that the database could look for.
    is_text = isinstance(named, str) and named.isascii() and named.isprintable()
    issuer = Issuer.objects.filter(url=named, is_enabled=True).first() if is_text else None
    if issuer is None:
        raise InvalidToken(_("The issuer of the token is not on the site's list."))
    key = key_of(issuer, kid, now=now)
    if key is None:
        raise InvalidToken(_("The issuer has no key of the name that the token gives."))
    try:
        claims: dict[str, Any] = jwt.decode(
            assertion,
            _public_key(key, algorithm),
            algorithms=[algorithm],
            issuer=issuer.url,
            leeway=domain.LEEWAY,
            options={"require": _REQUIRED, "verify_aud": False},
        )
    except jwt.ExpiredSignatureError:
        raise InvalidToken(_("The token has expired; ask the issuer for a new one.")) from None
    except jwt.ImmatureSignatureError:
        raise InvalidToken(_("The token is not valid yet; the clocks differ by more than a minute.")) from None
    except jwt.MissingRequiredClaimError as error:
        raise InvalidToken(_("The token lacks the claim “%(claim)s”.") % {"claim": error.claim}) from None
    except (jwt.InvalidTokenError, ValueError):
        raise InvalidToken(_("The signature of the token is not that of its issuer.")) from None
    _require_ours(claims, issuer, now)
    return issuer, claims


def _require_ours(claims: Mapping[str, Any], issuer: Issuer, now: datetime) -> None:
    if claims["aud"] not in (audience(), [audience()]):
        ours = {"ours": audience()}
        raise InvalidToken(_("The token is not for this installation: its audience must be %(ours)s alone.") % ours)
    if datetime.fromtimestamp(claims["iat"], UTC) < now - timedelta(minutes=issuer.max_age_minutes) - domain.LEEWAY:
        age = {"minutes": issuer.max_age_minutes}
        raise InvalidToken(_("The token is older than %(minutes)d minutes; ask the issuer for a new one.") % age)
    if not isinstance(claims["jti"], str) or not 0 < len(claims["jti"]) <= _LONGEST_JTI:
        raise InvalidToken(_("The token lacks the claim “%(claim)s”.") % {"claim": "jti"})


def _public_key(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK:
    """Return a key for one algorithm. Raises InvalidToken when it is not of its kind, or too short."""
    try:
        made = jwt.PyJWK.from_dict(dict(key), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError):
        raise InvalidToken(_("The issuer's key cannot be used.")) from None
    good = (
        isinstance(made.key, rsa.RSAPublicKey) and made.key.key_size >= _LEAST_RSA_BITS
        if algorithm == "RS256"
        else isinstance(made.key, ec.EllipticCurvePublicKey) and isinstance(made.key.curve, ec.SECP256R1)
    )
    if not good:
        raise InvalidToken(_("The issuer's key does not fit %(algorithm)s.") % {"algorithm": algorithm})
    return made


def _candidates(issuer: Issuer, project: str, rule: str, job: domain.Job) -> list[TrustRule]:
    """Return the enabled rules about the job's repository, locked, so that a change of one waits, or is seen."""
    rules = TrustRule.objects.filter(
        issuer=issuer,
        issuer__is_enabled=True,
        repository_id=job.repository_id,
        owner_id=job.owner_id,
        is_enabled=True,
        service_account__is_active=True,
    )
    if project:
        rules = rules.filter(project__slug=project)
    if rule:
        rules = rules.filter(name=rule)
    locked = rules.select_for_update(of=("self",), no_key=True).select_related("project", "service_account")
    return list(locked.order_by("pk"))


def _chosen(candidates: list[TrustRule], job: domain.Job) -> TrustRule:
    """Return the one rule that the job meets. Rules about other repositories are never spoken of."""
    if not candidates:
        raise PermissionDenied(
            _("No rule trusts repository %(id)s of owner %(owner)s (%(path)s) with this.")
            % {"id": job.repository_id, "owner": job.owner_id, "path": job.path or "?"}
        )
    why = {rule: domain.failures(rule, job) for rule in candidates}
    fitting = [rule for rule, failed in why.items() if not failed]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        message = _("%(count)d rules fit this job; name the project and the rule.") % {"count": len(fitting)}
        raise ValidationFailed(message, errors=[{"field": "rule", "message": message}])
    sentences = [
        _("Rule “%(rule)s” does not fit the job: %(why)s.") % {"rule": rule.name, "why": "; ".join(failed)}
        for rule, failed in list(why.items())[:_MOST_NAMED]
    ]
    raise PermissionDenied(" ".join(sentences))


def _use_once(issuer: Issuer, claims: Mapping[str, Any]) -> None:
    """Note that the token was used. Of two at once the second waits for the first and is refused."""
    until = datetime.fromtimestamp(claims["exp"], UTC)
    try:
        with transaction.atomic():
            IssuerTokenUse.objects.create(
                issuer=issuer, jti_sha256=hashlib.sha256(claims["jti"].encode()).hexdigest(), expires_at=until
            )
    except IntegrityError:
        raise InvalidToken(_("The token was used before; each is good for one exchange.")) from None


def _shown(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims that say who it was: short texts and numbers, no more than forty."""
    plain = {
        str(name)[:60]: value[:300] if isinstance(value, str) else value
        for name, value in claims.items()
        if isinstance(value, str | int) and name != "jti"
    }
    return dict(list(plain.items())[:40])
