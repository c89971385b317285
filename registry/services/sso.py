"""Single sign-on as administrators set it up: providers and what their groups give."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import urlsplit

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.addresses import is_in, is_public, parse_address, parse_networks
from registry.errors import Conflict, ValidationFailed
from registry.models import GroupMapping, Project, Role, SignUp, SiteRole, SsoProvider, User
from registry.services import audit
from registry.services.fields import require_slug
from registry.services.permissions import require
from registry.services.sealing import seal
from registry.services.sso_sign_in import groups_reapply

# Claims that name an account for good: of the standard, and of Microsoft Entra, whose "sub" only we would know.
SUBJECT_CLAIMS = ("sub", "oid")
_CHANGEABLE = ("name", "client_id", "groups_claim", "scopes", "sign_up", "is_enabled")


def sso_provider_create(
    *,
    slug: str,
    name: str,
    issuer: str,
    client_id: str,
    client_secret: str,
    subject_claim: str = "sub",
    groups_claim: str = "groups",
    scopes: str = "openid profile email",
    sign_up: str = SignUp.OFF,
    actor: Actor,
) -> SsoProvider:
    """Add an OpenID Connect provider. Its secret is sealed and never shown again. Site administrators only.

    Raises:
        ValidationFailed: a bad value; ``errors`` names the field.
        Conflict: the short name or the issuer is taken.
    """
    require(actor, "site.users")
    require_slug(slug, limit=63)
    provider = SsoProvider(slug=slug, issuer=_issuer(issuer), secret_sealed=seal(_secret(client_secret)))
    provider.subject_claim = subject_claim.strip()
    if provider.subject_claim not in SUBJECT_CLAIMS:
        known = ", ".join(SUBJECT_CLAIMS)
        raise _invalid("subject_claim", _("The claim for subjects is one of: %(known)s.") % {"known": known})
    given = {"name": name, "client_id": client_id, "groups_claim": groups_claim, "scopes": scopes, "sign_up": sign_up}
    _set(provider, given)
    try:
        with transaction.atomic():
            provider.save()
            audit.record(actor=actor, action="sso_provider.create", obj=provider, after=_facts(provider))
    except IntegrityError:
        raise Conflict(_("There is a provider of this short name or issuer already.")) from None
    return provider


def sso_provider_update(
    *, provider: SsoProvider, client_secret: str | None = None, actor: Actor, **changes: Any
) -> SsoProvider:
    """Change what is given: ``name, client_id, client_secret, groups_claim, scopes, sign_up, is_enabled``."""
    require(actor, "site.users")
    with transaction.atomic():
        row = SsoProvider.objects.select_for_update(no_key=True).get(pk=provider.pk)
        before = _facts(row)
        _set(row, {name: value for name, value in changes.items() if value is not None})
        if client_secret is not None:
            row.secret_sealed = seal(_secret(client_secret))
        row.save()
        after = _facts(row) | ({"client_secret": "changed"} if client_secret is not None else {})
        audit.record(actor=actor, action="sso_provider.update", obj=row, before=before, after=after)
    return row


def sso_provider_delete(*, provider: SsoProvider, actor: Actor) -> None:
    """Remove a provider with its mappings and the links of accounts to it. Roles that it gave stay, as if by hand."""
    require(actor, "site.users")
    with transaction.atomic():
        links = SocialAccount.objects.filter(provider=provider.slug)
        facts = {**_facts(provider), "linked_accounts": links.count()}
        links.delete()
        audit.record(actor=actor, action="sso_provider.delete", obj=provider, before=facts)
        provider.delete()


def group_mapping_create(
    *, provider: SsoProvider, group: str, project: Project | None = None, role: str, actor: Actor
) -> GroupMapping:
    """Give the members of a group a role in a project, or (without one) on the site.

    From their next sign-in on; where the provider keeps the group here (SCIM), at once.

    Raises:
        ValidationFailed: there is no such role, or no group.
        Conflict: the group has a role there already.
    """
    require(actor, "site.users")
    known = Role.values if project is not None else [SiteRole.OPERATOR.value, SiteRole.ADMIN.value]
    if role not in known:
        raise _invalid("role", _("The role is one of: %(roles)s.") % {"roles": ", ".join(known)})
    if not group.strip() or len(group) > 200:
        raise _invalid("group", _("A group has a name of at most 200 characters."))
    mapping = GroupMapping(provider=provider, group=group.strip(), project=project, role=role)
    with transaction.atomic():
        try:
            with transaction.atomic():
                mapping.save()
        except IntegrityError:
            raise Conflict(_("This group has a role there already; remove that first.")) from None
        audit.record(actor=actor, action="group_mapping.create", obj=mapping, after=_mapping_facts(mapping))
        groups_reapply(provider=provider, users=_kept_members(mapping), actor=actor)
    return mapping


def group_mapping_delete(*, mapping: GroupMapping, actor: Actor) -> None:
    """Remove a mapping. What it gave goes at the person's next sign-in; of a group that is kept here (SCIM) at once."""
    require(actor, "site.users")
    with transaction.atomic():
        audit.record(actor=actor, action="group_mapping.delete", obj=mapping, before=_mapping_facts(mapping))
        provider, members = mapping.provider, _kept_members(mapping)
        mapping.delete()
        groups_reapply(provider=provider, users=members, actor=actor)


def issuer_problem(issuer: str) -> str:
    """Return why an issuer cannot be used, empty when it can, as far as its text tells."""
    try:
        parts = urlsplit(issuer)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return _("This is no address.")
    if parts.scheme not in ("https", "http") or not host or not issuer.isascii() or len(issuer) > 500:
        return _("An issuer begins with https:// and a host.")
    if parts.username is not None or parts.query or parts.fragment:
        return _("An issuer has no user, no query and no fragment.")
    allowed = parse_networks(settings.SSO_ALLOWED_NETWORKS)
    if parts.scheme == "http" and not allowed:
        return _("Only https: anybody on the way could sign in as anybody.")
    address = parse_address(host)
    if address is not None and not (is_public(address) or is_in(address, allowed)):
        return _("%(host)s is a private address; FLOTILLA_SSO_ALLOWED_NETWORKS can allow it.") % {"host": host}
    return ""


def _issuer(issuer: str) -> str:
    issuer = issuer.strip()
    problem = issuer_problem(issuer)
    if problem:
        raise _invalid("issuer", problem)
    return issuer


def _secret(secret: str) -> str:
    if not secret.strip() or len(secret) > 1000:
        raise _invalid("client_secret", _("Give the client secret that the provider shows."))
    return secret.strip()


def _set(provider: SsoProvider, given: dict[str, Any]) -> None:
    for name in given.keys() & set(_CHANGEABLE):
        value = given[name]
        setattr(provider, name, value.strip() if isinstance(value, str) else value)
    for field, limit in (("name", 100), ("client_id", 200)):
        if not getattr(provider, field) or len(getattr(provider, field)) > limit:
            raise _invalid(field, _("Give at most %(limit)d characters.") % {"limit": limit})
    if len(provider.groups_claim) > 100 or len(provider.scopes) > 200 or "openid" not in provider.scopes.split():
        raise _invalid("scopes", _("Scopes are words with spaces between them, “openid” among them."))
    if provider.sign_up not in SignUp.values:
        raise _invalid("sign_up", _("Sign-up is one of: %(known)s.") % {"known": ", ".join(SignUp.values)})


def _facts(provider: SsoProvider) -> dict[str, Any]:
    names = ("slug", "issuer", "subject_claim", *_CHANGEABLE)
    return {name: getattr(provider, name) for name in names}


def _kept_members(mapping: GroupMapping) -> set[uuid.UUID]:
    """Return who is in the group, if the provider keeps it here."""
    named = Q(scim_groups__display_name=mapping.group) | Q(scim_groups__external_id=mapping.group)
    rows = User.objects.filter(named, scim_groups__provider=mapping.provider)
    return set(rows.values_list("pk", flat=True))


def _mapping_facts(mapping: GroupMapping) -> dict[str, Any]:
    project = mapping.project.slug if mapping.project is not None else None
    return {"provider": mapping.provider.slug, "group": mapping.group, "project": project, "role": mapping.role}


def _invalid(field: str, message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
