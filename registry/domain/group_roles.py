"""What the groups of somebody who signs in elsewhere mean here. Pure.

A mapping grants and takes away only what a mapping gave: roles that a person gave stay as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Rule(Generic[Place]):
    """Members of ``group`` have ``role`` in ``place`` (a project, or None for the site)."""

    group: str
    place: Place
    role: str


@dataclass(frozen=True, slots=True)
class Held:
    """A role that somebody has; ``is_mapped``: a mapping of the same provider gave it."""

    role: str
    is_mapped: bool


def wanted_roles(rules: Iterable[Rule[Place]], groups: Iterable[str], rank: Mapping[str, int]) -> dict[Place, str]:
    """Return the highest role in each place that the groups give."""
    mine, found = set(groups), dict[Place, str]()
    for rule in rules:
        if rule.group in mine and rank.get(rule.role, 0) > rank.get(found.get(rule.place, ""), 0):
            found[rule.place] = rule.role
    return found


def role_changes(wanted: Mapping[Place, str], held: Mapping[Place, Held]) -> dict[Place, str | None]:
    """Return the role to give in each place where something changes; None takes it away."""
    changes: dict[Place, str | None] = {}
    for place, role in wanted.items():
        now = held.get(place)
        if now is None or (now.is_mapped and now.role != role):
            changes[place] = role
    for place, now in held.items():
        if now.is_mapped and place not in wanted:
            changes[place] = None
    return changes


def groups_in_force(
    claimed: Iterable[str], kept: Iterable[Iterable[str]], mine: Iterable[Iterable[str]]
) -> frozenset[str]:
    """Return the groups that count for somebody: what they claimed, and where the provider keeps them (SCIM).

    ``kept`` are the names of each group that the provider keeps here, ``mine`` those with the person in it. About a
    group that is kept, an older claim says nothing.
    """
    known = {name for names in kept for name in names}
    return frozenset(claimed) - known | {name for names in mine for name in names}


def groups_of(claim: object) -> tuple[str, ...]:
    """Return the groups of a claim: a list of texts, or one text; anything else is no group."""
    if isinstance(claim, str):
        return (claim,)
    return tuple(one for one in claim if isinstance(one, str)) if isinstance(claim, list | tuple) else ()
