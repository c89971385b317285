"""Names that people give, judged the same way everywhere."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _

from registry.errors import ValidationFailed

_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?")
_SERVED_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def require_slug(slug: str, *, limit: int, field: str = "slug") -> str:
    """Return the slug: letters, digits, ``-`` and ``_``, beginning and ending with a letter or digit.

    Raises:
        ValidationFailed: it is none; ``errors`` names the field.
    """
    if not slug or len(slug) > limit or not _SLUG.fullmatch(slug):
        message = _(
            "A name has letters, digits, “-” and “_”, begins and ends with a letter or digit, "
            "and has at most %(limit)s characters."
        ) % {"limit": limit}
        raise ValidationFailed(message, errors=[{"field": field, "message": message}])
    return slug


def require_served_name(name: str) -> str:
    """Return a name under which nodes serve: like a slug, with dots, at most 80 characters.

    Raises:
        ValidationFailed: it is none.
    """
    if len(name) > 80 or not _SERVED_NAME.fullmatch(name):
        message = _("A served name has letters, digits, “.”, “-” and “_”, and at most 80 characters.")
        raise ValidationFailed(message, errors=[{"field": "served_name", "message": message}])
    return name


def require_labels(labels: object, *, field: str = "labels") -> dict[str, str]:
    """Return labels: short texts by short names.

    Raises:
        ValidationFailed: they are none; ``errors`` names the field.
    """
    good = isinstance(labels, dict) and all(
        isinstance(key, str)
        and isinstance(value, str)
        and len(key) <= 63
        and len(value) <= 63
        and _LABEL.fullmatch(key)
        and (not value or _LABEL.fullmatch(value))
        for key, value in labels.items()
    )
    if not good or not isinstance(labels, dict):
        message = _("Labels are pairs like environment=development: letters, digits, “.”, “-”, “_”, “/”.")
        raise ValidationFailed(message, errors=[{"field": field, "message": message}])
    return dict(labels)
