"""When changes may start: windows that open or close by a cron expression in a time zone. Pure.

A window begins at each time of its expression and lasts its duration. A closing one forbids changes while it lasts;
where there are opening ones, changes start only inside one of them; closing wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from registry.domain.texts import gettext as _
from registry.errors import ValidationFailed

EFFECTS = ("allow", "deny")
MAX_WINDOWS = 20
MAX_MINUTES = 31 * 24 * 60
# How far ahead an opening is looked for, and how many borders of windows are tried on the way.
HORIZON = timedelta(days=400)
_STEPS = 400
# Local clocks are set back by at most two hours (Antarctica/Troll): a time of day may come again within these.
_SHIFT = timedelta(hours=2, minutes=1)
_FIELDS = {"name", "effect", "cron", "duration_minutes", "time_zone"}


@dataclass(frozen=True, slots=True)
class Window:
    """One window. ``effect`` is ``allow`` or ``deny``; ``cron`` has five fields and is read in ``time_zone``.

    A local time that a change of clocks leaves out begins at the end of the gap; one that comes twice begins at its
    first occurrence (as Debian's cron does). The duration is real time.
    """

    name: str
    effect: str
    cron: str
    duration_minutes: int
    time_zone: str = "UTC"

    @property
    def duration(self) -> timedelta:
        """How long it lasts."""
        return timedelta(minutes=self.duration_minutes)

    def to_json(self) -> dict[str, Any]:
        """Return the document kept with the environment."""
        return {
            "name": self.name,
            "effect": self.effect,
            "cron": self.cron,
            "duration_minutes": self.duration_minutes,
            "time_zone": self.time_zone,
        }

    def ends(self, at: datetime) -> datetime | None:
        """Return when the window that lasts at a moment ends; None when none does."""
        # A microsecond more, so that a beginning at this very moment counts.
        start = at + self._shift(at) + timedelta(microseconds=1)
        for begin in self._times(start, reverse=True):
            if begin <= at:
                end = begin + self.duration
                return end if at < end else None
        return None

    def begins(self, after: datetime) -> datetime | None:
        """Return the first beginning after a moment; None when there is none in decades."""
        return next((begin for begin in self._times(after - self._shift(after)) if begin > after), None)

    def _shift(self, at: datetime) -> timedelta:
        """Return how far away to begin, so that clocks that are set back around a moment hide no beginning."""
        zone = ZoneInfo(self.time_zone)
        before, after = ((at + step).astimezone(zone).utcoffset() for step in (-_SHIFT, _SHIFT))
        return timedelta() if before == after else _SHIFT

    def _times(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        local = start.astimezone(ZoneInfo(self.time_zone))
        for moment in CronSim(self.cron, local, reverse=reverse):
            yield moment.astimezone(UTC)


def opening(windows: Sequence[Window], at: datetime) -> datetime | None:
    """Return the first moment from ``at`` on when changes may start: ``at`` itself when they may now.

    None: not within the next 400 days, as far as can be told.
    """
    closing = [window for window in windows if window.effect == "deny"]
    allowing = [window for window in windows if window.effect == "allow"]
    moment, last = at, at + HORIZON
    for _step in range(_STEPS):
        if moment > last:
            return None
        ends = [end for window in closing if (end := window.ends(moment)) is not None]
        if ends:
            moment = max(ends)
        elif not allowing or any(window.ends(moment) is not None for window in allowing):
            return moment
        else:
            begins = [begin for window in allowing if (begin := window.begins(moment)) is not None]
            if not begins:
                return None
            moment = min(begins)
    return None


def closing_at(windows: Sequence[Window], at: datetime) -> str:
    """Return the names of the windows that forbid changes at a moment, else of those that would allow them."""
    active = [window.name for window in windows if window.effect == "deny" and window.ends(at) is not None]
    return ", ".join(active or [window.name for window in windows if window.effect == "allow"])


def read_windows(documents: object, *, field: str = "windows") -> tuple[Window, ...]:
    """Read windows from JSON.

    Raises:
        ValidationFailed: unknown fields, a bad expression, duration, zone or effect; ``errors`` names each.
    """
    if not isinstance(documents, list | tuple) or len(documents) > MAX_WINDOWS:
        message = _("Windows are a list of at most %(most)d.") % {"most": MAX_WINDOWS}
        raise ValidationFailed(message, errors=[{"field": field, "message": message}])
    errors: list[dict[str, str]] = []
    windows = [_read(document, f"{field}[{index}]", errors) for index, document in enumerate(documents)]
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)
    return tuple(window for window in windows if window is not None)


def _read(document: Any, field: str, errors: list[dict[str, str]]) -> Window | None:
    if not isinstance(document, Mapping):
        errors.append({"field": field, "message": _("A window is an object.")})
        return None
    problems = {str(name): _("There is no such field.") for name in document if name not in _FIELDS}
    texts = {name: document.get(name, default) for name, default in _DEFAULTS.items()}
    for name, value in texts.items():
        if not isinstance(value, str) or len(value) > 100 or "\0" in value:
            problems[name] = _("This must be a text of at most 100 characters.")
            texts[name] = ""
    minutes = document.get("duration_minutes")
    if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= MAX_MINUTES:
        problems["duration_minutes"] = _("A window lasts from 1 to %(most)d minutes.") % {"most": MAX_MINUTES}
        minutes = 1
    if texts["effect"] not in EFFECTS:
        problems.setdefault("effect", _("The effect is “allow” or “deny”."))
    if not _is_zone(texts["time_zone"]):
        problems.setdefault("time_zone", _("This is no time zone, such as Europe/Berlin."))
    if not _is_cron(texts["cron"]):
        problems.setdefault("cron", _("A cron expression has five fields, such as 0 18 * * FRI."))
    errors += [{"field": f"{field}.{name}", "message": message} for name, message in problems.items()]
    if problems:
        return None
    cron = " ".join(texts["cron"].split())
    return Window(texts["name"].strip() or cron, texts["effect"], cron, minutes, texts["time_zone"])


_DEFAULTS = {"name": "", "effect": "", "cron": "", "time_zone": "UTC"}


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return bool(name)


def _is_cron(expression: str) -> bool:
    try:
        times = CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
        return len(expression.split()) == 5 and next(times, None) is not None
    except CronSimError:
        return False
