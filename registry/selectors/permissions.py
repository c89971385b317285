"""Who may do what, and the sentence why not."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from rules.predicates import predicate
from rules.rulesets import RuleSet

from registry.domain.actors import Actor
from registry.models import ROLE_RANK, ApprovalRequest, Deployment, Membership, Project
from registry.selectors.standing import memberships_of


@dataclass(frozen=True, slots=True)
class Allowed:
    """The caller may."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Denied:
    """The caller may not; ``reason`` is one sentence for people."""

    reason: str

    def __bool__(self) -> bool:
        return False


# Permission in a project -> (role, scope of a token). Site permissions -> (site roles, scope).
_PROJECT: dict[str, tuple[str, str]] = {
    "project.view": ("viewer", "read"),
    "model.write": ("publisher", "write"),
    "model.manage": ("admin", "write"),
    "alias.move": ("publisher", "write"),
    "alias.move_protected": ("approver", "write"),
    "version.write": ("publisher", "write"),
    "version.quarantine": ("operator", "write"),
    "version.measure": ("publisher", "write"),
    "version.measure_guarded": ("operator", "write"),
    "config.write": ("publisher", "write"),
    "deployment.change": ("publisher", "write"),
    "deployment.traffic": ("operator", "write"),
    "deployment.rollback": ("operator", "write"),
    "deployment.infer": ("publisher", "write"),
    "approval.review": ("approver", "write"),
    "approval.comment": ("viewer", "write"),
    "approval.bypass": ("viewer", "write"),
    "approval.withdraw": ("admin", "write"),
    "operation.cancel": ("publisher", "write"),
    "project.members": ("admin", "admin"),
    "project.policy": ("admin", "admin"),
    "project.tokens": ("viewer", "admin"),
    "project.webhooks": ("admin", "admin"),
    "project.trust": ("admin", "admin"),
}
_SITE: dict[str, tuple[tuple[str, ...], str]] = {
    "site.view": (("none", "operator", "admin"), "read"),
    "site.fleet": (("operator", "admin"), "admin"),
    "site.environments": (("admin",), "admin"),
    "site.users": (("admin",), "admin"),
    "site.projects": (("operator", "admin"), "admin"),
    "site.quotas": (("admin",), "admin"),
    "site.webhooks": (("admin",), "admin"),
    "site.issuers": (("admin",), "admin"),
}
# Where no approval is needed, whoever may deploy may also shift traffic and go back.
_RELAXED = {"deployment.traffic", "deployment.rollback"}
PERMISSIONS = frozenset(_PROJECT) | frozenset(_SITE)

# Roles by project and user, while several questions are answered together.
_known_roles: ContextVar[dict[tuple[uuid.UUID, uuid.UUID], str] | None] = ContextVar("known_roles", default=None)

# The library ships without annotations for these two.
_predicate: Any = predicate
_rule_set: Any = RuleSet


def project_id_of(obj: Any) -> uuid.UUID | None:
    """Return the id of the project that a row belongs to; None for rows of the site."""
    if isinstance(obj, Project):
        return obj.id
    for name in ("project_id", "model", "deployment", "version", "request"):
        value = getattr(obj, name, None)
        if isinstance(value, uuid.UUID):
            return value
        if value is not None and name != "project_id":
            return project_id_of(value)
    return None


def role_in(actor: Actor, project: Any) -> str:
    """Return the actor's role in a project (or in the project of a row), empty when there is none."""
    project_id = project_id_of(project)
    if actor.user_id is None or project_id is None:
        return ""
    if actor.only_project_id not in (None, project_id):
        return ""
    memberships = memberships_of(actor.user_id)
    if memberships is not None:
        return next((one.role for one in memberships if one.project_id == project_id), "")
    known = _known_roles.get()
    place = (project_id, actor.user_id)
    if known is not None and place in known:
        return known[place]
    rows = Membership.objects.filter(project_id=project_id, user_id=actor.user_id).values_list("role", flat=True)
    role = rows.first() or ""
    if known is not None:
        known[place] = role
    return role


def _at_least(role: str) -> Any:
    def holds(actor: Actor, obj: Any) -> bool:
        return ROLE_RANK.get(role_in(actor, obj), 0) >= ROLE_RANK[role]

    return _predicate(holds, name=f"at_least:{role}")


def _site_role(roles: tuple[str, ...]) -> Any:
    def holds(actor: Actor, obj: Any) -> bool:
        narrowed = actor.only_project_id is not None
        return actor.user is not None and actor.user.site_role in roles and not narrowed

    return _predicate(holds, name=f"site_role:{roles}")


def _unprotected(actor: Actor, obj: Any) -> bool:
    return isinstance(obj, Deployment) and not obj.fleet.environment.requires_approval


def _may_bypass(actor: Actor, obj: Any) -> bool:
    if not isinstance(obj, ApprovalRequest) or actor.user is None:
        return False
    environment = obj.environment
    if environment.bypassers.filter(pk=actor.user.id).exists():
        return True
    return environment.admins_bypass and actor.user.site_role == "admin" and not actor.user.is_service


_RULES: Any = _rule_set()
for _name, (_role, _scope) in _PROJECT.items():
    _rule = _at_least(_role)
    if _name in _RELAXED:
        _rule |= _predicate(_unprotected) & _at_least("publisher")
    if _name == "approval.bypass":
        _rule &= _predicate(_may_bypass)
    if _name == "project.members":
        _rule |= _site_role(("admin",))
    _RULES.add_rule(_name, _rule)
for _name, (_roles, _scope) in _SITE.items():
    _RULES.add_rule(_name, _site_role(_roles))


def can(actor: Actor, permission: str, obj: Any = None) -> Allowed | Denied:
    """Say whether the actor may do ``permission`` on ``obj``.

    Project permissions take any row of a project (project, model, version, config, deployment, approval, operation):
    ``project.view``, ``model.write``, ``model.manage``, ``alias.move``, ``alias.move_protected``, ``version.write``,
    ``version.quarantine``, ``version.measure``, ``version.measure_guarded`` (on nodes of environments that need
    approvals), ``config.write``,
    ``deployment.change``, ``deployment.traffic``, ``deployment.rollback``, ``deployment.infer``, ``approval.review``,
    ``approval.comment``, ``approval.bypass`` (whom the environment lets, whatever their role), ``approval.withdraw``,
    ``operation.cancel``, ``project.members``, ``project.policy``, ``project.tokens``,
    ``project.webhooks``, ``project.trust``.
    Site permissions take None: ``site.view``, ``site.fleet``, ``site.environments``, ``site.users``,
    ``site.projects``, ``site.quotas``, ``site.webhooks``, ``site.issuers``.
    """
    if actor.is_system:
        return Allowed()
    if actor.user is None or not actor.user.is_active:
        return Denied(_("Sign in first."))
    scope = _PROJECT[permission][1] if permission in _PROJECT else _SITE[permission][1]
    if not actor.has_scope(scope):
        return Denied(_("The token used lacks the scope “%(scope)s”.") % {"scope": scope})
    if _RULES.test_rule(permission, actor, obj):
        return Allowed()
    return Denied(_reason(actor, permission, obj))


def can_each(actor: Actor, permissions: Iterable[str], obj: Any = None) -> dict[str, Allowed | Denied]:
    """Say it of several permissions on one row, with one look at the role."""
    token = _known_roles.set({})
    try:
        return {name: can(actor, name, obj) for name in permissions}
    finally:
        _known_roles.reset(token)


def _reason(actor: Actor, permission: str, obj: Any) -> str:
    if permission in _SITE:
        needed = _SITE[permission][0][0]
        return _("This needs the site role “%(role)s”.") % {"role": needed}
    role = role_in(actor, obj)
    if not role:
        return _("You are not a member of this project.")
    if permission == "approval.bypass":
        return _("The environment does not let you bypass its rules.")
    return _("This needs the role “%(needed)s” in the project; you are “%(role)s”.") % {
        "needed": _PROJECT[permission][0],
        "role": role,
    }
