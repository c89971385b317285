"""Issuers that the site knows, and the rules by which a project trusts jobs of theirs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain import ci_trust as domain
from registry.domain.actors import Actor
from registry.domain.addresses import parse_networks, url_problem
from registry.errors import Conflict, QuotaExceeded, ValidationFailed
from registry.models import ApiToken, Issuer, IssuerKind, Membership, Project, TrustRule, User
from registry.services import audit
from registry.services.fields import require_slug
from registry.services.permissions import require

MAX_ISSUERS = 50
# Each rule of an issuer is looked at when a job of its repository comes.
MAX_RULES = 100
_RULE_FIELDS = (
    "name", "repository", "repository_id", "owner_id", "protected_ref", "ref", "environment", "workflow", "events",
    "scopes", "lifetime_minutes", "is_enabled",
)  # fmt: skip


def issuer_create(*, slug: str, kind: str, url: str = "", max_age_minutes: int | None = None, actor: Actor) -> Issuer:
    """Put an issuer on the site's list. Site administrators only.

    ``url`` empty: that of the kind itself; else that of a GitLab or GitHub Enterprise of one's own.
    ``max_age_minutes``: how old a token of it may be; None: what suits the kind.

    Raises:
        ValidationFailed: a bad name, kind, address or age; ``errors`` names the field.
        Conflict: the name or the address is on the list.
        QuotaExceeded: there are too many.
    """
    require(actor, "site.issuers")
    require_slug(slug, limit=63)
    if kind not in IssuerKind.values:
        raise _invalid("kind", _("There is no such kind of issuer."))
    preset = domain.PRESETS[kind]
    issuer = Issuer(
        slug=slug,
        kind=kind,
        url=_issuer_url(url or preset.url),
        max_age_minutes=_age(max_age_minutes if max_age_minutes is not None else preset.max_age_minutes),
    )
    if Issuer.objects.count() >= MAX_ISSUERS:
        raise QuotaExceeded(_("There are %(limit)d issuers already, the most there may be.") % {"limit": MAX_ISSUERS})
    try:
        with transaction.atomic():
            issuer.save()
            audit.record(actor=actor, action="issuer.create", obj=issuer, after=_issuer_facts(issuer))
    except IntegrityError:
        raise Conflict(_("An issuer of this name or address is on the list already.")) from None
    return issuer


def issuer_update(*, issuer: Issuer, actor: Actor, **changes: Any) -> Issuer:
    """Change ``is_enabled`` or ``max_age_minutes``. Of a disabled one no token is taken, and those given end."""
    require(actor, "site.issuers")
    with transaction.atomic():
        locked = Issuer.objects.select_for_update(no_key=True).get(pk=issuer.pk)
        before = _issuer_facts(locked)
        locked.max_age_minutes = _age(changes.get("max_age_minutes", locked.max_age_minutes))
        locked.is_enabled = bool(changes.get("is_enabled", locked.is_enabled))
        if before != _issuer_facts(locked):
            locked.save(update_fields=["max_age_minutes", "is_enabled"])
            if not locked.is_enabled:
                _end_tokens(TrustRule.objects.filter(issuer=locked))
            audit.record(actor=actor, action="issuer.update", obj=locked, before=before, after=_issuer_facts(locked))
    return locked


def issuer_delete(*, issuer: Issuer, actor: Actor) -> None:
    """Take an issuer from the list.

    Raises:
        Conflict: projects have rules about it; disable it, or have them removed first.
    """
    require(actor, "site.issuers")
    try:
        with transaction.atomic():
            audit.record(actor=actor, action="issuer.delete", obj=issuer, before=_issuer_facts(issuer))
            Issuer.objects.get(pk=issuer.pk).delete()
    except ProtectedError as error:
        count = {"count": len(error.protected_objects)}
        raise Conflict(_("%(count)d rules of projects name this issuer; disable it instead.") % count) from None


def trust_rule_create(
    *, project: Project, issuer: Issuer, service_account: User, actor: Actor, **given: Any
) -> TrustRule:
    """Let jobs of a repository act as a service account in a project. Project administrators only.

    ``given``: the columns of ``TrustRule``; without ``events`` those that run code of the repository itself.

    Raises:
        ValidationFailed: what it binds to is too little, or not well said; ``errors`` names the field.
        Conflict: the name is taken.
        QuotaExceeded: there are too many.
    """
    require(actor, "project.trust", project)
    rule = TrustRule(project=project, issuer=issuer, created_by_id=actor.user_id)
    _fill(rule, service_account=service_account, **given)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        if TrustRule.objects.filter(project=project).count() >= MAX_RULES:
            raise QuotaExceeded(_("There are %(limit)d rules already, the most there may be.") % {"limit": MAX_RULES})
        _save(rule)
        audit.record(actor=actor, action="trust_rule.create", obj=rule, after=_rule_facts(rule))
        _publish(rule)
    return rule


def trust_rule_update(*, rule: TrustRule, actor: Actor, **changes: Any) -> TrustRule:
    """Change what is given of a rule. Tokens that it gave end at once: they were given under other words."""
    require(actor, "project.trust", rule.project)
    with transaction.atomic():
        locked = (
            TrustRule.objects.select_for_update(of=("self",), no_key=True)
            .select_related("project", "issuer", "service_account")
            .get(pk=rule.pk)
        )
        before = _rule_facts(locked)
        _fill(locked, **changes)
        if before != _rule_facts(locked):
            _save(locked)
            _end_tokens([locked])
            audit.record(actor=actor, action="trust_rule.update", obj=locked, before=before, after=_rule_facts(locked))
            _publish(locked)
    return locked


def trust_rule_delete(*, rule: TrustRule, actor: Actor) -> None:
    """Delete a rule. Tokens that it gave end at once."""
    require(actor, "project.trust", rule.project)
    with transaction.atomic():
        _end_tokens([rule])
        audit.record(actor=actor, action="trust_rule.delete", obj=rule, before=_rule_facts(rule))
        _publish(rule)
        TrustRule.objects.filter(pk=rule.pk).delete()


def _fill(rule: TrustRule, *, service_account: User | None = None, **given: Any) -> None:
    """Set what is given and judge the whole."""
    if service_account is not None:
        is_member = Membership.objects.filter(project=rule.project, user=service_account).exists()
        if not service_account.is_service or not service_account.is_active or not is_member:
            raise _invalid("service_account", _("Name a service account that is a member of the project."))
        rule.service_account = service_account
    for field in _RULE_FIELDS:
        if field in given:
            setattr(rule, field, given[field])
    rule.events = rule.events or list(domain.PRESETS[rule.issuer.kind].events)
    rule.name, rule.repository = rule.name.strip(), rule.repository.strip()
    if not rule.name or len(rule.name) > 100 or not rule.name.isprintable():
        raise _invalid("name", _("Give the rule a name of at most 100 characters."))
    problems = domain.rule_problems(
        repository_id=rule.repository_id,
        owner_id=rule.owner_id,
        protected_ref=rule.protected_ref,
        ref=rule.ref,
        environment=rule.environment,
        workflow=rule.workflow,
        events=rule.events,
        scopes=rule.scopes,
        lifetime_minutes=rule.lifetime_minutes,
    )
    if problems:
        errors = [{"field": field, "message": message} for field, message in problems]
        raise ValidationFailed(errors[0]["message"], errors=errors)


def _save(rule: TrustRule) -> None:
    try:
        with transaction.atomic():
            rule.save()
    except IntegrityError:
        message = _("There is a rule “%(name)s” already.") % {"name": rule.name}
        raise Conflict(message, errors=[{"field": "name", "message": _("This name is taken.")}]) from None


def _end_tokens(rules: Any) -> None:
    now = timezone.now()
    ApiToken.objects.filter(trust_rule__in=rules, revoked_at=None, expires_at__gt=now).update(revoked_at=now)


def _issuer_url(url: str) -> str:
    problem = url_problem(url, parse_networks(settings.ISSUER_ALLOWED_NETWORKS))
    if not problem and (len(url) > 500 or "?" in url or url.endswith("/")):
        problem = _("Give the address as it stands in the tokens: without “?” and without a slash at the end.")
    if problem:
        raise _invalid("url", problem)
    return url


def _age(minutes: int) -> int:
    if not 1 <= minutes <= domain.MAX_AGE_MINUTES:
        limit = {"limit": domain.MAX_AGE_MINUTES}
        raise _invalid("max_age_minutes", _("A token may be 1 to %(limit)d minutes old.") % limit)
    return minutes


def _issuer_facts(issuer: Issuer) -> dict[str, Any]:
    return {
        "slug": issuer.slug,
        "kind": issuer.kind,
        "url": issuer.url,
        "max_age_minutes": issuer.max_age_minutes,
        "is_enabled": issuer.is_enabled,
    }


def _rule_facts(rule: TrustRule) -> dict[str, Any]:
    facts = {field: getattr(rule, field) for field in _RULE_FIELDS}
    return {**facts, "issuer": rule.issuer.slug, "service_account": rule.service_account.username}


def _publish(rule: TrustRule) -> None:
    telemetry.publish_on_commit(f"project:{rule.project_id}", project=rule.project_id)


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
