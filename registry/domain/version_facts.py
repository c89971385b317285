"""What is known of where a version comes from and how good it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from registry.domain.licences import UnreadableLicence, read_licence
from registry.domain.texts import gettext as _

MAX_METRICS = 100
MAX_METADATA_BYTES = 64 * 1024
MAX_TEXT = 500
_METRIC = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.@/ -]{0,62}[A-Za-z0-9])?")
_SHA = re.compile(r"[0-9A-Fa-f]{4,64}")
_MOST = 1e300


def _sha(value: str) -> str:
    return "" if _SHA.fullmatch(value) else _("A commit is 4 to 64 hexadecimal digits.")


def _text(value: str) -> str:
    good = 0 < len(value) <= MAX_TEXT and value.isprintable()
    return "" if good else _("This takes 1 to %(limit)d visible characters.") % {"limit": MAX_TEXT}


def is_address(value: str) -> bool:
    """Say whether a text is an address that a browser may be sent to."""
    return not _address(value)


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.username is None
    except ValueError:
        good = False
    good = good and len(value) <= 2000 and value.isascii() and value.isprintable() and " " not in value
    return "" if good else _("This takes an http or https address without a user in it.")


def _licence(value: str) -> str:
    try:
        return "" if read_licence(value) is not None else _("This takes a licence, such as Apache-2.0.")
    except UnreadableLicence as error:
        return str(error)


# What may be said of the source, each with what is wrong with a value; the order is that of the pages.
SOURCE_FIELDS: Mapping[str, Callable[[str], str]] = {
    "git_sha": _sha,
    "git_ref": _text,
    "repository": _address,
    "ci_run": _address,
    "author": _text,
    "dataset": _text,
    "licence": _licence,
}


def source_problems(source: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what is wrong with a source, as ``{"field", "message"}``; unknown names are."""
    found = []
    for name, value in source.items():
        field = f"source.{str(name)[:64]}"
        if name == "converted_from":
            message = _("“converted_from” is written when the report of a conversion is attached.")
        elif name not in SOURCE_FIELDS:
            message = _("A source has no “%(name)s”; known are %(known)s. Other facts belong in the metadata.") % {
                "name": str(name)[:64],
                "known": ", ".join(SOURCE_FIELDS),
            }
        elif not isinstance(value, str):
            message = _("This takes a text.")
        else:
            message = SOURCE_FIELDS[name](value)
        if message:
            found.append({"field": field, "message": message})
    return found


def metric_problems(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what is wrong with metrics: names with finite numbers, a bounded count of them."""
    if len(metrics) > MAX_METRICS:
        message = _("A version has at most %(limit)d metrics.") % {"limit": MAX_METRICS}
        return [{"field": "metrics", "message": message}]
    found = []
    for name, value in metrics.items():
        if not _METRIC.fullmatch(name):
            message = _("The name of a metric begins with a letter; it has letters, digits, spaces and _ . @ / -.")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST <= value <= _MOST:
            message = _("A metric is a finite number.")
        else:
            continue
        found.append({"field": f"metrics.{str(name)[:64]}", "message": message})
    return found
