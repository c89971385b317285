"""Names that point at a version of a model. Pure."""

from __future__ import annotations

import re

from registry.domain.texts import gettext as _

LATEST = "latest"
MAX_ALIAS = 30
_NAME = re.compile(r"[a-z](?:[a-z0-9_-]*[a-z0-9])?")
_LIKE_A_VERSION = re.compile(r"v[0-9]+")


def alias_problem(name: str) -> str:
    """Return why ``name`` cannot be an alias, empty when it can.

    An alias stands wherever a number or an id of a version stands, so it must be neither: it begins with a letter and
    is shorter than an id.
    """
    if name == LATEST:
        return _("“latest” is always the newest ready version; it cannot be set.")
    if len(name) > MAX_ALIAS or not _NAME.fullmatch(name):
        return _(
            "An alias has lower-case letters, digits, “-” and “_”, begins with a letter, ends with a letter or digit, "
            "and has at most %(limit)d characters."
        ) % {"limit": MAX_ALIAS}
    if _LIKE_A_VERSION.fullmatch(name):
        return _("“%(name)s” looks like a version; choose another name.") % {"name": name}
    return ""


def is_alias(reference: str) -> bool:
    """Say whether a text may be an alias, ``latest`` among them, rather than a number or an id."""
    return reference == LATEST or not alias_problem(reference)
