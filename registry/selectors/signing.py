"""Public keys that projects trust."""

from __future__ import annotations

import uuid

from django.db.models import Count, QuerySet
from django.utils.translation import gettext as _

from registry.models import Check, Project, SigningKey, Verdict
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


def verified_by_key(project: Project) -> dict[str, int]:
    """Return how many versions of the project each key was last seen to have signed, by fingerprint."""
    name = "evidence__signer__fingerprint"
    rows = Check.objects.filter(
        version__model__project=project, kind="signature_verification", verdict=Verdict.PASS
    ).exclude(**{name: None})
    return dict(rows.order_by().values_list(name).annotate(Count("pk")))
