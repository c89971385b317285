"""Template tags and filters of every page: icons, status badges, times, sizes and numbers with units."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.templatetags.tones import tone_of
from registry.domain.checks import check_kind
from registry.domain.durations import minutes_text
from registry.domain.version_facts import is_address

register = template.Library()
register.filter(is_address)


@register.simple_tag
@lru_cache(maxsize=1024)
def icon(name: str, css: str = "") -> SafeString:
    """Return an icon of the sprite, hidden from screen readers: the word stands beside it."""
    return format_html(
        '<svg class="icon {}" viewBox="0 0 24 24" aria-hidden="true"><use href="{}#{}"></use></svg>',
        css,
        static("icons.svg"),
        name,
    )


@register.simple_tag
def badge(value: object, prefix: str = "", title: str = "") -> SafeString:
    """Return a status badge: icon, word and tone from one table. ``prefix`` names what the status is of."""
    tone = tone_of(value)
    return format_html(
        '<span class="badge-s tone-{}" data-status="{}"{}>{}<span>{}{}</span></span>',
        tone.tone,
        value or "unknown",
        format_html(' title="{}"', title) if title else "",
        icon(tone.icon, "spin" if tone.spins else ""),
        f"{prefix} " if prefix else "",
        tone.label,
    )


@register.filter
def tone(value: object) -> str:
    """Return the tone of a status: green, amber, red, blue or grey."""
    return tone_of(value).tone


@register.filter
def status_label(value: object) -> str:
    """Return the word of a status."""
    return str(tone_of(value).label)


@register.filter
def check_label(kind: str) -> str:
    """Return the title of a kind of check."""
    known = check_kind(kind)
    return known.label if known is not None else status_label(kind)


@register.filter
def minutes(value: int) -> str:
    """Return minutes in the largest unit that holds them without a rest: 90m, 62h, 2d."""
    return minutes_text(value)


@register.filter
def since(moment: datetime.datetime | None) -> SafeString | str:
    """Return a relative time that the browser keeps true, with the exact time (UTC) on hover."""
    if moment is None:
        return _("never")
    exact = moment.astimezone(datetime.UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC" data-relative>{}</time>',
        exact.isoformat(timespec="seconds"),
        exact.strftime("%Y-%m-%d %H:%M:%S"),
        relative(exact - timezone.now()),
    )


@register.filter
def countdown(moment: datetime.datetime | None) -> SafeString | str:
    """Return a moment to come as time of day and the time left to it, which the browser counts down.

    Only the time of day is read out: what changes every second would never let a screen reader finish.
    """
    if moment is None:
        return _("no time yet")
    exact, now = moment.astimezone(datetime.UTC), timezone.now()
    is_today = exact.date() == now.astimezone(datetime.UTC).date()
    return format_html(
        '<time class="num" datetime="{}" title="{} UTC" data-moment>{} UTC</time>'
        '<span class="num" aria-hidden="true" data-countdown="{}">, {}</span>',
        exact.isoformat(timespec="seconds"),
        exact.strftime("%Y-%m-%d %H:%M:%S"),
        exact.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M"),
        exact.isoformat(timespec="seconds"),
        _("in %(amount)s") % {"amount": remaining(exact - now)},
    )


@register.filter
def stopwatch(moment: datetime.datetime) -> SafeString:
    """Return the time that has passed since a moment, which the browser goes on counting; read out as the moment."""
    exact = moment.astimezone(datetime.UTC)
    return format_html(
        '<time class="num visually-hidden" datetime="{}" data-moment>{} UTC</time>'
        '<span class="num" aria-hidden="true" title="{} UTC" data-elapsed="{}">{}</span>',
        exact.isoformat(timespec="seconds"),
        exact.strftime("%H:%M"),
        exact.strftime("%Y-%m-%d %H:%M:%S"),
        exact.isoformat(timespec="seconds"),
        remaining(timezone.now() - exact),
    )


def remaining(left: datetime.timedelta) -> str:
    """Return ``2 h 5 min``, ``5 min 3 s`` or ``3 d 2 h``: two units at most; the past counts as 0 s."""
    whole = max(0, math.ceil(left.total_seconds()))
    days, hours, minutes, seconds_left = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds_left} s" if minutes else f"{seconds_left} s"


@register.filter
def is_ahead(moment: datetime.datetime | None) -> bool:
    """Say whether a moment is still to come; none never is."""
    return moment is not None and moment > timezone.now()


_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNITS = ((60.0, 1.0, "sec."), (3600.0, 60.0, "min."), (86400.0, 3600.0, "hr."), (math.inf, 86400.0, "days"))


def relative(difference: datetime.timedelta) -> str:
    """Return ``5 min. ago`` or ``in 2 days``."""
    seconds = difference.total_seconds()
    size, unit = next((size, unit) for limit, size, unit in _UNITS if abs(seconds) < limit)
    amount = f"{round(abs(seconds) / size)} {unit}"
    return _("%(amount)s ago") % {"amount": amount} if seconds <= 0 else _("in %(amount)s") % {"amount": amount}


_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("Linux", "Linux"),
)


@register.filter
def device(user_agent: str) -> str:
    """Return browser and system of a User-Agent header: ``Firefox on Linux``; its beginning when it is neither."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    if browser and system:
        return _("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    return browser or system or user_agent[:40] or _("unknown")


@register.filter
def hours(value: int) -> str:
    """Return hours in words: ``8 hours``, ``14 days``."""
    if value % 24 == 0:
        return ngettext("%(count)d day", "%(count)d days", value // 24) % {"count": value // 24}
    return ngettext("%(count)d hour", "%(count)d hours", value) % {"count": value}


@register.filter
def size(value: float | None) -> str:
    """Return bytes in binary units: ``3.4 MiB``."""
    if value is None:
        return "–"  # noqa: RUF001
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


@register.filter
def digest(value: object) -> object:
    """Return a SHA-256 cut to twelve digits with all of it on hover; anything else as it is."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        return value
    return format_html('<span title="{}">{}</span>', value, value[:12])


@register.filter
def seconds(value: float | None) -> str:
    """Return a duration in the unit that suits it: ``850 µs``, ``12.4 ms``, ``3.2 s``, ``5 min 3 s``."""
    if value is None:
        return "–"  # noqa: RUF001
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.1f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


@register.filter
def milliseconds(value: float | None) -> str:
    """Return milliseconds in a fitting unit."""
    return seconds(None if value is None else value / 1000)


@register.filter
def figure(value: float) -> str:
    """Return a number with three significant digits: ``0.0312``, ``1.2e-07``."""
    return f"{value:.3g}"


@register.filter
def change(share: float | None) -> str:
    """Return a change as percent with its sign: 0.125 -> ``+12.5 %``."""
    return "–" if share is None else f"{share * 100:+.1f} %"  # noqa: RUF001


@register.filter
def seen(age_seconds: float | None) -> str:
    """Return how long ago something was observed, in words."""
    if age_seconds is None:
        return _("never seen")
    if age_seconds < 15:
        return _("seen just now")
    return _("seen %(age)s ago") % {"age": seconds(age_seconds)}


@register.filter
def short(value: object, length: int = 12) -> str:
    """Return the first characters of a digest or id."""
    return str(value or "")[:length]


@register.filter
def shape(dimensions: Iterable[int] | None) -> str:
    """Return a tensor's shape as people write it: ``[-1, 3, 224, 224]``, ``scalar`` for none."""
    numbers = list(dimensions or ())
    return "[" + ", ".join(str(number) for number in numbers) + "]" if numbers else _("scalar")


@register.filter
def pretty(value: Any) -> str:
    """Return a JSON document with two spaces of indent."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def percent_of(part: float | None, whole: float | None) -> int:
    """Return ``part`` as a whole percentage of ``whole``; 0 when there is no whole."""
    return round(100 * (part or 0) / whole) if whole else 0


@register.filter
def item(mapping: Any, key: Any) -> Any:
    """Return ``mapping[key]`` or nothing."""
    return mapping.get(key, "") if hasattr(mapping, "get") else ""


@register.filter
def series(version: int | None) -> str:
    """Return the colour class of a version: the same in every bar and chart of the console."""
    return f"series-{((version or 1) - 1) % 5}"


@register.simple_tag
def split_bar(weights: Sequence[tuple[int, float]]) -> SafeString:
    """Return a bar of stacked traffic weights (0..100 each) as SVG, which needs no inline style.

    ``weights``: (version number, percent).
    """
    offset = 0.0
    parts = []
    for version, percent in weights:
        parts.append((series(version), offset, percent))
        offset += percent
    label = ", ".join(f"v{version} {percent:g} %" for version, percent in weights)
    return format_html(
        '<svg class="split-bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        label or _("no traffic"),
        format_html_join("", '<rect class="{}" x="{}" y="0" width="{}" height="8"></rect>', parts),
    )


@register.simple_tag
def meter(part: float | None, whole: float | None, label: str) -> SafeString:
    """Return a small bar for a share of something, with a text alternative. Red above 95 %, amber above 85 %."""
    percent = min(100, percent_of(part, whole))
    colour = "red" if percent > 95 else "amber" if percent > 85 else "blue"
    return format_html(
        '<svg class="meter-svg tone-{}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"'
        ' aria-label="{}: {} %"><rect x="0" y="0" width="{}" height="8"></rect></svg>',
        colour,
        label,
        percent,
        percent,
    )
