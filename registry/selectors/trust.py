"""Issuers and rules of trust as the caller may see them."""

from __future__ import annotations

import uuid

from django.db.models import Count, QuerySet
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound, ValidationFailed
from registry.models import Issuer, Project, TrustRule, User
from registry.selectors.lookup import one_by_id


def audience() -> str:
    """Return what a CI token must name as its audience: this installation and no other.

    It follows from the server's secret key, and says nothing about it.
    """
    return "flotilla:" + salted_hmac("flotilla.audience", "ci", algorithm="sha256").hexdigest()[:24]


def issuers(actor: Actor) -> QuerySet[Issuer]:
    """Return the site's issuers, by name, with how many rules name each. Whoever is signed in may know them."""
    is_known = actor.user is not None and actor.user.is_active and actor.has_scope("read")
    if not (actor.is_system or is_known):
        return Issuer.objects.none()
    return Issuer.objects.annotate(rules=Count("trust_rules")).order_by("slug")


def issuer_get(actor: Actor, slug: str) -> Issuer:
    """Return one.

    Raises:
        NotFound: there is none of that name.
    """
    issuer = issuers(actor).filter(slug=slug).first()
    if issuer is None:
        raise NotFound(_("There is no issuer “%(slug)s” on the site's list.") % {"slug": slug[:63]})
    return issuer


def trust_rules(project: Project) -> QuerySet[TrustRule]:
    """Return the rules of a project, newest first."""
    return (
        TrustRule.objects.filter(project=project)
        .select_related("project", "issuer", "service_account", "created_by")
        .order_by("-created_at")
    )


def trust_rule_get(project: Project, rule_id: uuid.UUID | str) -> TrustRule:
    """Return one.

    Raises:
        NotFound: the project has none of that id.
    """
    return one_by_id(trust_rules(project), rule_id, _("There is no such rule in this project."))


def trustable_accounts(project: Project) -> QuerySet[User]:
    """Return the service accounts that a rule of the project may name."""
    return User.objects.filter(is_service=True, is_active=True, memberships__project=project).order_by("username")


def trustable_account(project: Project, username: str) -> User:
    """Return one of them.

    Raises:
        ValidationFailed: there is none of that name.
    """
    account = trustable_accounts(project).filter(username=username).first()
    if account is None:
        message = _("Name a service account that is a member of the project.")
        raise ValidationFailed(message, errors=[{"field": "service_account", "message": message}])
    return account
