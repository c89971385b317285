"""Licences as SPDX expressions, and what a project thinks of them. Pure.

Source: SPDX specification 2.3, annex D (https://spdx.github.io/spdx-spec/v2.3/SPDX-license-expressions/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from license_expression import (
    LicenseSymbol,
    LicenseWithExceptionSymbol,
    Licensing,
    get_spdx_licensing,
)

from registry.domain.texts import gettext as _

MAX_CHARACTERS = 500
MAX_LISTED = 200
REF = "LicenseRef-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,99}")
_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,99}\*?(?: WITH [A-Za-z0-9.-]{1,100})?")
_NOTHING = frozenset({"", "none", "noassertion", "other", "unknown", "n/a"})


class Treatment(StrEnum):
    """What follows for a version, in order of severity."""

    ACCEPT = "accept"
    REVIEW = "review"
    REFUSE = "refuse"


_SEVERITY = tuple(Treatment)


class UnreadableLicence(ValueError):
    """The text is no licence expression; the message says why."""


@dataclass(frozen=True, slots=True)
class Licence:
    """A licence expression in the spelling of SPDX. ``unknown`` are its names that SPDX does not list."""

    expression: str
    unknown: tuple[str, ...]
    tree: Any


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy says of a licence, and the names that decided it (none where it is accepted)."""

    treatment: Treatment
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LicencePolicy:
    """What a project thinks of licences. Names may end in ``*``: ``GPL-*``. Forbidden goes before allowed.

    ``unlisted``: what follows for a licence on neither list; ``missing``: where a version states none.
    """

    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    unlisted: Treatment = Treatment.ACCEPT
    missing: Treatment = Treatment.REVIEW

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> LicencePolicy:
        """Read what a project keeps; what is not there is as usual."""
        usual = LicencePolicy()
        return LicencePolicy(
            tuple(document.get("allowed", ())),
            tuple(document.get("forbidden", ())),
            Treatment(document.get("unlisted", usual.unlisted)),
            Treatment(document.get("missing", usual.missing)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "allowed": [*self.allowed],
            "forbidden": [*self.forbidden],
            "unlisted": str(self.unlisted),
            "missing": str(self.missing),
        }

    def judge(self, licence: Licence) -> Ruling:
        """Judge an expression: of what OR joins the mildest counts, of what AND joins the severest."""
        return self._judge(licence.tree)

    def names(self, name: str) -> bool:
        """Return whether one of the lists names a licence."""
        return _is_listed(name, self.allowed) or _is_listed(name, self.forbidden)

    def _judge(self, part: Any) -> Ruling:
        spdx = _spdx()
        if isinstance(part, spdx.AND | spdx.OR):
            rulings = [self._judge(one) for one in part.args]
            chosen = (max if isinstance(part, spdx.AND) else min)(_SEVERITY.index(one.treatment) for one in rulings)
            treatment = _SEVERITY[chosen]
            deciding = [name for one in rulings if one.treatment is treatment for name in one.names]
            return Ruling(treatment, tuple(dict.fromkeys(deciding)))
        names = _names_of(part)
        for name in names:
            if _is_listed(name, self.forbidden):
                return Ruling(Treatment.REFUSE, names[:1])
            if _is_listed(name, self.allowed):
                return Ruling(Treatment.ACCEPT)
        return Ruling(self.unlisted, () if self.unlisted is Treatment.ACCEPT else names[:1])


def severest(treatments: Sequence[Treatment]) -> Treatment:
    """Return the severest of several."""
    return max(treatments, key=_SEVERITY.index, default=Treatment.ACCEPT)


def read_licence(text: str) -> Licence | None:
    """Read a licence expression in any case, with names of one's own as ``LicenseRef-...``; None: it states nothing.

    Raises:
        UnreadableLicence: the text is something else.
    """
    text = text.strip()
    if text.casefold() in _NOTHING:
        return None
    if len(text) > MAX_CHARACTERS:
        raise UnreadableLicence(_("A licence expression has at most %(most)d characters.") % {"most": MAX_CHARACTERS})
    spdx = _spdx()
    try:
        tree = spdx.parse(text)
        unknown = tuple(symbol.key for symbol in spdx.unknown_license_symbols(tree, unique=True))
    except Exception as error:  # the library raises several kinds, of which not all are its own
        raise UnreadableLicence(_unreadable(text)) from error
    symbols = tree.symbols if tree is not None else ()
    own = {one.key for one in symbols if not isinstance(one, LicenseWithExceptionSymbol)}
    # Names of one's own stand alone: what an unknown exception takes back from a licence nobody can say.
    if tree is None or not all(_NAME.fullmatch(name) and name in own for name in unknown):
        raise UnreadableLicence(_unreadable(text))
    named = {name: LicenseSymbol(_ref(name)) for name in unknown}
    if named:
        tree = tree.subs({LicenseSymbol(name): symbol for name, symbol in named.items()}, simplify=False)
    return Licence(tree.render("{symbol.key}"), tuple(sorted(symbol.key for symbol in named.values())), tree)


def policy_problems(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what is wrong with a project's policy, as ``{"field", "message"}``."""
    found = []
    for name, value in document.items():
        field = f"licence_policy.{str(name)[:64]}"
        if name in ("allowed", "forbidden"):
            found += _list_problems(field, value)
        elif name not in ("unlisted", "missing"):
            known = "allowed, forbidden, unlisted, missing"
            message = _("A policy of licences has %(known)s.") % {"known": known}
            found.append({"field": field, "message": message})
        elif value not in tuple(Treatment):
            message = _("This is “accept”, “review” or “refuse”.")
            found.append({"field": field, "message": message})
    return found


def _list_problems(field: str, names: Any) -> list[dict[str, str]]:
    if not isinstance(names, list | tuple) or len(names) > MAX_LISTED:
        return [{"field": field, "message": _("This is a list of at most %(most)d names.") % {"most": MAX_LISTED}}]
    found = []
    for index, name in enumerate(names):
        message = ""
        if not isinstance(name, str) or not _PATTERN.fullmatch(name):
            message = _("A licence is named as SPDX does (Apache-2.0), as LicenseRef-..., or by a beginning: GPL-*.")
        elif not name.endswith("*") and not name.startswith(REF) and _is_unknown(name):
            message = _("SPDX lists no licence “%(name)s”; one of your own is LicenseRef-%(name)s.") % {"name": name}
        if message:
            found.append({"field": f"{field}[{index}]", "message": message})
    return found


def _is_unknown(name: str) -> bool:
    try:
        licence = read_licence(name)
    except UnreadableLicence:
        return True
    return licence is None or bool(licence.unknown)


def _ref(name: str) -> str:
    own = name[len(REF) :] if name.casefold().startswith(REF.casefold()) else name
    return REF + own.replace("+", "-")


def _names_of(part: Any) -> tuple[str, ...]:
    """Return the names under which one licence can be listed: with its exception first, then without."""
    if isinstance(part, LicenseWithExceptionSymbol):
        return (f"{part.license_symbol.key} WITH {part.exception_symbol.key}", part.license_symbol.key)
    return (str(part.key),)


def _is_listed(name: str, names: Sequence[str]) -> bool:
    # What is listed by its beginning says nothing of exceptions: those stand on a list by themselves.
    listed = [one for one in names if " WITH " not in name or not one.endswith("*")]
    return any(fnmatchcase(name.casefold(), _canonical(one).casefold()) for one in listed)


@cache
def _canonical(name: str) -> str:
    """Return a listed name as expressions spell it: ``GPL-3.0`` is ``GPL-3.0-only``."""
    if name.endswith("*"):
        return name
    licence = read_licence(name)
    return licence.expression if licence is not None else name


def _unreadable(text: str) -> str:
    return _("“%(text)s” is no licence expression of SPDX, such as Apache-2.0 or MIT OR GPL-3.0-only.") % {
        "text": text[:80]
    }


@cache
def _spdx() -> Licensing:
    return get_spdx_licensing()
