"""What SCIM 2.0 asks for, as changes of an account. Pure. Source: RFC 7643 and RFC 7644.

Of a user we keep ``userName``, ``externalId``, ``name.givenName``, ``name.familyName``, the first (or primary) of
``emails`` and ``active``; other attributes are not kept, which the standard allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from registry.domain.texts import gettext as _

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
MOST_OPERATIONS = 100
_FILTER = re.compile(
    r'\s*(userName|externalId|id|emails(?:\[type eq "work"\])?\.value)\s+eq\s+"((?:[^"\\]|\\.)*)"\s*', re.IGNORECASE
)
_COLUMNS = {"username": "username__iexact", "externalid": "external_id", "id": "pk"}
_FIELDS = {
    "username": "username",
    "externalid": "external_id",
    "name.givenname": "first_name",
    "name.familyname": "last_name",
    "active": "is_active",
}
_EMAIL = re.compile(r"emails(\[.*\])?(\.value)?", re.IGNORECASE)


class ScimProblem(ValueError):
    """What was sent cannot be done; ``kind`` is the standard's word for why."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


def condition_of(text: str) -> tuple[str, str]:
    """Return column and value of a filter such as ``userName eq "alice"``. Raises ScimProblem for any other."""
    found = _FILTER.fullmatch(text)
    if found is None:
        raise ScimProblem("invalidFilter", _("Filters are: userName, externalId, id or emails.value, eq and a text."))
    value = re.sub(r"\\(.)", r"\1", found[2])
    return _COLUMNS.get(found[1].lower(), "email__iexact"), value


def changes_of(document: Mapping[str, Any], *, replaces: bool) -> dict[str, Any]:
    """Return the fields of an account that a document gives; ``replaces``: what it leaves out is emptied."""
    changes: dict[str, Any] = {"first_name": "", "last_name": "", "email": "", "external_id": ""} if replaces else {}
    for name, value in document.items():
        _take(changes, name, value)
    return changes


def patch_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that a PATCH asks for, in its order. Raises ScimProblem."""
    operations = document.get("Operations")
    if not isinstance(operations, list) or not 1 <= len(operations) <= MOST_OPERATIONS:
        raise ScimProblem("invalidSyntax", _("A PATCH has a list “Operations” with at least one."))
    changes: dict[str, Any] = {}
    for one in operations:
        kind = str(one.get("op", "")).lower() if isinstance(one, dict) else ""
        path, value = (one.get("path"), one.get("value")) if isinstance(one, dict) else (None, None)
        if kind not in ("add", "replace", "remove"):
            raise ScimProblem("invalidSyntax", _("An operation is add, replace or remove."))
        if kind == "remove":
            if not isinstance(path, str):
                raise ScimProblem("noTarget", _("To remove something, name its path."))
            if path.lower() in ("username", "active"):
                raise ScimProblem("mutability", _("An account always has a userName and is active or not."))
            _take(changes, path, "")
        elif isinstance(path, str):
            _take(changes, path, value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                _take(changes, name, inner)
        else:
            raise ScimProblem("invalidValue", _("Without a path the value is an object."))
    return changes


def _take(changes: dict[str, Any], name: str, value: Any) -> None:
    path = name.removeprefix(f"{USER}:").lower()
    if path == "name" and isinstance(value, dict):
        for inner, text in value.items():
            _take(changes, f"name.{inner}", text)
    elif path == "active":
        changes["is_active"] = _flag(value)
    elif path in _FIELDS:
        changes[_FIELDS[path]] = _text(name, value)
    elif _EMAIL.fullmatch(path):
        changes["email"] = _email(value)


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):  # Microsoft Entra sends texts.
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ScimProblem("invalidValue", _("“active” is true or false."))
    return value


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise ScimProblem("invalidValue", _("“%(name)s” is a text.") % {"name": name[:100]})
    return value


def _email(value: Any) -> str:
    if isinstance(value, list):
        rows = [one for one in value if isinstance(one, dict)]
        chosen = next((one for one in rows if one.get("primary") is True), rows[0] if rows else {})
        return _text("emails", chosen.get("value"))
    return _text("emails", value.get("value") if isinstance(value, dict) else value)
