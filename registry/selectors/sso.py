"""Providers of single sign-on and what their groups give, for those who manage accounts."""

from __future__ import annotations

import uuid
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db.models import Count, QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import GroupMapping, ScimGroup, ScimToken, SsoProvider, User
from registry.selectors.lookup import one_by_id
from registry.selectors.permissions import can


def providers_managed_by(actor: Actor) -> QuerySet[SsoProvider]:
    """Return all providers for administrators of the site, else none; by name."""
    rows = SsoProvider.objects.order_by("slug")
    return rows if can(actor, "site.users") else rows.none()


def provider_get(actor: Actor, slug: str) -> SsoProvider:
    """Return a provider.

    Raises:
        NotFound: it does not exist, or the actor does not manage accounts.
    """
    row = providers_managed_by(actor).filter(slug=slug).first()
    if row is None:
        raise NotFound(_("There is no such provider."))
    return row


def providers_offered() -> QuerySet[SsoProvider]:
    """Return the providers by which one can sign in now."""
    return SsoProvider.objects.filter(is_enabled=True).order_by("name")


def mappings_of(provider: SsoProvider) -> QuerySet[GroupMapping]:
    """Return what the groups of a provider give."""
    return provider.mappings.select_related("project").order_by("group", "project__slug")


def mapping_get(provider: SsoProvider, mapping_id: uuid.UUID | str) -> GroupMapping:
    """Return one mapping. Raises NotFound."""
    return one_by_id(mappings_of(provider), mapping_id, _("There is no such mapping."))


def scim_groups_of(provider: SsoProvider) -> QuerySet[ScimGroup]:
    """Return the groups that a provider keeps here, by name, each with how many ``people`` are in it."""
    return provider.scim_groups.annotate(people=Count("members")).order_by("display_name")


def identities_of(user: User) -> list[tuple[Any, SsoProvider | None]]:
    """Return where somebody signs in elsewhere, with the provider."""
    by_slug = {one.slug: one for one in SsoProvider.objects.all()}
    rows = SocialAccount.objects.filter(user=user).order_by("date_joined", "pk")
    return [(row, by_slug.get(row.provider)) for row in rows]


def identity_get(user: User, identity_id: int) -> SocialAccount:
    """Return one of them. Raises NotFound."""
    row = SocialAccount.objects.filter(user=user, pk=identity_id).first()
    if row is None:
        raise NotFound(_("There is no such connected account."))
    return row


def scim_tokens_of(actor: Actor) -> QuerySet[ScimToken]:
    """Return the tokens for provisioning, newest first; for administrators of the site."""
    rows = ScimToken.objects.select_related("created_by", "provider").order_by("-created_at")
    return rows if can(actor, "site.users") else rows.none()


def scim_token_get(actor: Actor, token_id: uuid.UUID | str) -> ScimToken:
    """Return one of them. Raises NotFound."""
    return one_by_id(scim_tokens_of(actor), token_id, _("There is no such token."))
