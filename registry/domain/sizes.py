"""How large a version may be: thresholds for a warning and for a refusal, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from registry.domain.texts import gettext as _

GIB = 1024**3
MAX_THRESHOLD = 2**53
THRESHOLDS = ("warn", "fail")


@dataclass(frozen=True, slots=True)
class Limit:
    """A version above ``warn`` gets a warning, one above ``fail`` is refused. None: no such threshold."""

    warn: int | None = None
    fail: int | None = None


# What is measured: all files together, the largest one, and how many there are. What a project does not set is this.
DEFAULTS: Mapping[str, Limit] = {
    "total_bytes": Limit(warn=50 * GIB),
    "file_bytes": Limit(warn=10 * GIB),
    "files": Limit(warn=1000),
}


@dataclass(frozen=True, slots=True)
class Excess:
    """One measure above one of its thresholds."""

    measure: str
    found: int
    limit: int
    is_refused: bool


def read_limits(document: Mapping[str, Any], site: Mapping[str, int]) -> dict[str, Limit]:
    """Return the limits that count: those of the project, where it has none the usual ones, never above the site's.

    ``document`` is what a project keeps: ``{measure: {"warn", "fail"}}``, each part optional, None for no threshold.
    ``site`` is the most that any version may have, by measure.
    """
    found = {}
    for measure, usual in DEFAULTS.items():
        given = document.get(measure, {})
        most = site.get(measure)
        fails = [value for value in (given.get("fail", usual.fail), most) if value is not None]
        fail = min(fails) if fails else None
        warn = given.get("warn", usual.warn)
        found[measure] = Limit(warn if warn is None or fail is None or warn < fail else None, fail)
    return found


def limits_json(limits: Mapping[str, Limit]) -> dict[str, dict[str, int | None]]:
    """Return limits as JSON values."""
    return {measure: {"warn": limit.warn, "fail": limit.fail} for measure, limit in limits.items()}


def limit_problems(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what is wrong with the limits of a project, as ``{"field", "message"}``."""
    found = []
    for measure, limit in document.items():
        field = f"size_limits.{str(measure)[:64]}"
        if measure not in DEFAULTS:
            message = _("Sizes are limited by %(known)s.") % {"known": ", ".join(DEFAULTS)}
            found.append({"field": field, "message": message})
        elif not isinstance(limit, Mapping) or set(limit) - set(THRESHOLDS):
            found.append({"field": field, "message": _("A limit has “warn” and “fail”, and nothing else.")})
        else:
            found += _threshold_problems(field, limit)
    return found


def _threshold_problems(field: str, limit: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for name, value in limit.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and 1 <= value <= MAX_THRESHOLD):
            message = _("A threshold is a whole number from 1 to %(most)d, or null for none.") % {"most": MAX_THRESHOLD}
            found.append({"field": f"{field}.{name}", "message": message})
    warn, fail = limit.get("warn"), limit.get("fail")
    if not found and warn is not None and fail is not None and warn > fail:
        message = _("The warning must not come above the refusal.")
        found.append({"field": f"{field}.warn", "message": message})
    return found


def measured(sizes: Sequence[int]) -> dict[str, int]:
    """Return the measures of a version whose files have these sizes in bytes."""
    return {"total_bytes": sum(sizes), "file_bytes": max(sizes, default=0), "files": len(sizes)}


def excesses(found: Mapping[str, int], limits: Mapping[str, Limit]) -> list[Excess]:
    """Return which measures are above a threshold, refusals first."""
    result = []
    for measure, limit in limits.items():
        value = found[measure]
        if limit.fail is not None and value > limit.fail:
            result.append(Excess(measure, value, limit.fail, is_refused=True))
        elif limit.warn is not None and value > limit.warn:
            result.append(Excess(measure, value, limit.warn, is_refused=False))
    return sorted(result, key=lambda one: not one.is_refused)
