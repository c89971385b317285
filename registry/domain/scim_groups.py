"""What SCIM 2.0 asks for of groups, as changes of their names and members. Pure. Source: RFC 7643, RFC 7644.

Of a group we keep ``displayName``, ``externalId`` and ``members``; a member is the id of an account here.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from registry.domain.scim import MOST_OPERATIONS, ScimProblem
from registry.domain.texts import gettext as _

GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
MOST_MEMBERS = 10_000
_CONDITION = re.compile(
    r'\s*(displayName|externalId|id|members(?:\.value)?)\s+eq\s+"((?:[^"\\]|\\.)*)"\s*(?:\band\b|$)', re.IGNORECASE
)
_COLUMNS = {"displayname": "display_name", "externalid": "external_id", "id": "pk"}
_ONE_MEMBER = re.compile(r'members\[\s*value\s+eq\s+"([^"]*)"\s*\]', re.IGNORECASE)
_NAMES = {"displayname": "display_name", "externalid": "external_id"}


@dataclass(frozen=True, slots=True)
class MemberStep:
    """One change of the members; ``replace`` puts these in place of all that there are."""

    kind: Literal["add", "remove", "replace"]
    members: frozenset[uuid.UUID]


@dataclass(frozen=True, slots=True)
class GroupChange:
    """New names, by column, and what happens to the members, in this order."""

    names: Mapping[str, str]
    steps: tuple[MemberStep, ...] = ()


def group_conditions(text: str) -> list[tuple[str, str]]:
    """Return columns and values of a filter such as ``displayName eq "ml" and members eq "<id>"``.

    Raises:
        ScimProblem: any other filter.
    """
    found, rest = [], text
    while match := _CONDITION.match(rest):
        value = re.sub(r"\\(.)", r"\1", match[2])
        found.append((_COLUMNS.get(match[1].lower(), "members"), value))
        rest = rest[match.end() :]
    if rest or not found or text.rstrip().lower().endswith(" and"):
        known = _("Filters are: displayName, externalId, id or members, eq and a text, perhaps several with “and”.")
        raise ScimProblem("invalidFilter", known)
    return found


def group_of(document: Mapping[str, Any]) -> GroupChange:
    """Return what a whole document says: its members are all members. Raises ScimProblem."""
    names = {"display_name": "", "external_id": ""}
    members: frozenset[uuid.UUID] = frozenset()
    for name, value in document.items():
        path = _path(name)
        if path == "members":
            members = frozenset(_members(value))
        elif path in _NAMES:
            names[_NAMES[path]] = _text(name, value)
    return GroupChange(names, (MemberStep("replace", members),))


def group_patch_of(document: Mapping[str, Any]) -> GroupChange:
    """Return what a PATCH asks for, in its order. Raises ScimProblem."""
    operations = document.get("Operations")
    if not isinstance(operations, list) or not 1 <= len(operations) <= MOST_OPERATIONS:
        raise ScimProblem("invalidSyntax", _("A PATCH has a list “Operations” with at least one."))
    names: dict[str, str] = {}
    steps: list[MemberStep] = []
    for one in operations:
        if not isinstance(one, dict) or str(one.get("op", "")).lower() not in ("add", "replace", "remove"):
            raise ScimProblem("invalidSyntax", _("An operation is add, replace or remove."))
        for path, value in _targets(one):
            _take(str(one["op"]).lower(), path, value, names, steps)
    return GroupChange(names, tuple(steps))


def members_after(now: Iterable[uuid.UUID], steps: Iterable[MemberStep]) -> set[uuid.UUID]:
    """Return the members after the steps."""
    members = set(now)
    for step in steps:
        if step.kind == "replace":
            members = set(step.members)
        elif step.kind == "add":
            members |= step.members
        else:
            members -= step.members
    return members


def _targets(operation: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield path and value of what an operation is about: of one without a path each name of its value."""
    path, value = operation.get("path"), operation.get("value")
    if isinstance(path, str) and path:
        yield path, value
    elif str(operation["op"]).lower() == "remove":
        raise ScimProblem("noTarget", _("To remove something, name its path."))
    elif isinstance(value, dict):
        yield from value.items()
    else:
        raise ScimProblem("invalidValue", _("Without a path the value is an object."))


def _take(kind: str, name: str, value: Any, names: dict[str, str], steps: list[MemberStep]) -> None:
    path = _path(name)
    if one := _ONE_MEMBER.fullmatch(path):
        if kind != "remove":
            raise ScimProblem("invalidPath", _("A single member is removed by such a path, not changed."))
        steps.append(MemberStep("remove", frozenset(_ids([one[1]], strict=False))))
    elif path == "members" and kind == "remove":
        # Microsoft Entra names them in the value; without one all go
        gone = frozenset(_members(value, strict=False))
        steps.append(MemberStep("remove", gone) if value is not None else MemberStep("replace", frozenset()))
    elif path == "members":
        steps.append(MemberStep("add" if kind == "add" else "replace", frozenset(_members(value))))
    elif path in _NAMES:
        if kind == "remove" and path == "displayname":
            raise ScimProblem("mutability", _("A group always has a displayName."))
        names[_NAMES[path]] = "" if kind == "remove" else _text(name, value)


def _path(name: str) -> str:
    return name.removeprefix(f"{GROUP}:").strip().lower()


def _members(value: Any, *, strict: bool = True) -> Iterator[uuid.UUID]:
    rows = value if isinstance(value, list) else [] if value is None else [value]
    if len(rows) > MOST_MEMBERS:
        raise ScimProblem("tooMany", _("A group has at most %(limit)d members.") % {"limit": MOST_MEMBERS})
    return _ids((row.get("value") if isinstance(row, dict) else row for row in rows), strict=strict)


def _ids(values: Iterable[Any], *, strict: bool) -> Iterator[uuid.UUID]:
    """Yield ids of accounts; what is none is refused, or (when members go) nobody."""
    for value in values:
        try:
            yield uuid.UUID(value)
        except (ValueError, TypeError, AttributeError):
            if strict:
                raise ScimProblem("invalidValue", _("A member is named by the id of its account.")) from None


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value or len(value) > 200:
        raise ScimProblem("invalidValue", _("“%(name)s” is a text of at most 200 characters.") % {"name": name[:100]})
    return value.strip()
