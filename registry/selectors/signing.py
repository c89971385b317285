"""Whose signatures projects trust."""

from __future__ import annotations

import uuid

from django.db.models import Count, QuerySet
from django.utils.translation import gettext as _

from registry.models import Check, Project, SigningIdentity, SigningKey, Verdict
from registry.selectors.lookup import one_by_id


def signing_keys(project: Project) -> QuerySet[SigningKey]:
    """Return the keys that a project trusts, by name. Every member may see them: they are public."""
    return SigningKey.objects.filter(project=project).select_related("project", "created_by").order_by("name")


def signing_key_get(project: Project, key_id: uuid.UUID | str) -> SigningKey:
    """Return one.

    Raises:
        NotFound: the project trusts none of that id.
    """
    return one_by_id(signing_keys(project), key_id, _("There is no such key in this project."))


def signing_identities(project: Project) -> QuerySet[SigningIdentity]:
    """Return the certificate and keyless identities that a project trusts, by name. Every member may see them."""
    return SigningIdentity.objects.filter(project=project).select_related("project", "created_by").order_by("name")


def signing_identity_get(project: Project, identity_id: uuid.UUID | str) -> SigningIdentity:
    """Return one.

    Raises:
        NotFound: the project trusts none of that id.
    """
    return one_by_id(signing_identities(project), identity_id, _("There is no such identity in this project."))


def verified_by(project: Project) -> dict[str, int]:
    """Return how many versions of the project each was last seen to have signed: keys by fingerprint, others by id."""
    counts: dict[str, int] = {}
    rows = Check.objects.filter(
        version__model__project=project, kind="signature_verification", verdict=Verdict.PASS
    ).order_by()
    for name in ("evidence__signer__fingerprint", "evidence__signer__identity_id"):
        counts |= dict(rows.exclude(**{name: None}).values_list(name).annotate(Count("pk")))
    return counts
