"""Lists: which filters, orders and fields one takes, and pages that stay stable while rows come and go.

A page begins after the values of the row before it (a keyset), not after a number of rows: what is added or deleted
meanwhile neither repeats nor hides a row. Unknown names and values that cannot be meant are refused, never ignored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter, or_
from typing import Any

import orjson
from django.core.exceptions import FieldDoesNotExist
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import BooleanField, Field, ForeignKey, Model, Q, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from registry.errors import ValidationFailed

PAGE_SIZE = 50
MOST_ROWS = 200
_MOST_CURSOR = 2000
_MOST_VALUES = 100
_RANGES = ("gte", "lt")
PAGING = ("cursor", "page_size", "ordering", "fields")


@dataclass(frozen=True, slots=True)
class Listing:
    """What an address that lists takes.

    ``filters``: columns (``model__slug`` follows a relation) that must equal one of the values given. ``times``:
    columns with ``__gte`` and ``__lt``. ``order``: how rows come when nothing else is asked. ``orderings``: columns
    that the caller may order by, none of which is ever null. ``also``: parameters that the view reads itself. Without
    ``is_paged`` only filters and ranges are taken.
    """

    filters: tuple[str, ...] = ()
    times: tuple[str, ...] = ("created_at",)
    order: tuple[str, ...] = ("-created_at",)
    orderings: tuple[str, ...] = ("created_at",)
    also: tuple[str, ...] = ()
    is_paged: bool = True

    @property
    def ranges(self) -> tuple[str, ...]:
        """Return the parameters for ranges of times."""
        return tuple(f"{name}__{end}" for name in self.times for end in _RANGES)

    def names(self) -> frozenset[str]:
        """Return every parameter that is understood."""
        return frozenset((*(PAGING if self.is_paged else ()), *self.filters, *self.ranges, *self.also))


@dataclass(frozen=True, slots=True)
class Page:
    """Rows with the addresses of the pages after and before, None where there are none."""

    rows: list[Any]
    next: str | None
    previous: str | None


def refuse_unknown(request: Request, known: Iterable[str]) -> None:
    """Refuse parameters of the address that nobody reads.

    Raises:
        ValidationFailed: one that is not among ``known``, one given twice, or one without a value.
    """
    names = sorted(known)
    for name, values in request.query_params.lists():
        if name not in names:
            told = _("There is no parameter “%(name)s” here; known are: %(known)s.")
            raise refusal(name, told % {"name": name[:100], "known": ", ".join(names) or _("none")})
        if not values[0]:
            raise refusal(name, _("“%(name)s” is empty; leave it out.") % {"name": name})
        if "\0" in values[0]:
            raise refusal(name, _("“%(name)s” holds a character that is not allowed.") % {"name": name})
        if len(values) > 1:
            raise refusal(name, _("“%(name)s” is given twice; separate values by commas.") % {"name": name})


def narrowed(request: Request, rows: QuerySet[Any], listing: Listing) -> QuerySet[Any]:
    """Return the rows that the filters of the address keep.

    Raises:
        ValidationFailed: a value that the column cannot have.
    """
    for name in listing.filters:
        text = request.query_params.get(name)
        if text:
            values = text.split(",")
            if len(values) > _MOST_VALUES:
                raise refusal(name, _("At most %(most)d values at once.") % {"most": _MOST_VALUES})
            rows = rows.filter(**{f"{name}__in": [_value(rows.model, name, value, name) for value in values]})
    for name in listing.ranges:
        text = request.query_params.get(name)
        if text is not None:
            rows = rows.filter(**{name: _moment(text, name)})
    return rows


def paginate(request: Request, rows: QuerySet[Any], listing: Listing) -> Page:
    """Return one page of rows.

    Raises:
        ValidationFailed: a bad cursor, page size or ordering.
    """
    size = _page_size(request)
    asked = request.query_params.get("ordering", "")
    order = _order(asked, listing) if asked else listing.order
    order = order if any(name.lstrip("-") == "id" for name in order) else (*order, _tie_breaker(order))
    cursor = request.query_params.get("cursor", "")
    is_back, after = _read_cursor(cursor, rows.model, order) if cursor else (False, ())
    walk = _turned(order) if is_back else order
    rows = rows.order_by(*walk)
    if after:
        rows = rows.filter(_beyond(walk, after))
    found = list(rows[: size + 1])
    has_more, found = len(found) > size, found[:size]
    if is_back:
        found.reverse()
    has_next = bool(found) and (is_back or has_more)
    has_previous = bool(found) and (has_more if is_back else bool(cursor))
    return Page(
        found,
        _address(request, order, found[-1], is_back=False) if has_next else None,
        _address(request, order, found[0], is_back=True) if has_previous else None,
    )


def chosen_fields(request: Request, known: Callable[[], Iterable[str]]) -> frozenset[str] | None:
    """Return the names in ``?fields=``, None when all are wanted; ``known`` is asked only where some are named.

    Raises:
        ValidationFailed: a name that no row has.
    """
    text = request.query_params.get("fields")
    if not text:
        return None
    wanted, names = frozenset(text.split(",")), set(known())
    for name in sorted(wanted - names):
        told = _("There is no field “%(name)s”; known are: %(known)s.")
        raise refusal("fields", told % {"name": name[:100], "known": ", ".join(sorted(names))})
    return wanted


def _moment(text: str, parameter: str) -> datetime:
    """Return a time of RFC 3339, with its zone. A ``+`` that the address made a space of is meant as one."""
    try:
        found = parse_datetime(text.replace(" ", "+"))
        if found is not None and found.tzinfo is not None and "T" in text.upper():
            return found.astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or one that only a far zone has
        pass
    raise refusal(parameter, _("Write times like 2026-01-31T12:00:00Z."))


def refusal(parameter: str, message: str) -> ValidationFailed:
    """Return the error of a parameter of the address."""
    parameter = parameter[:100]
    return ValidationFailed(message, errors=[{"field": parameter, "parameter": parameter, "message": message}])


def _page_size(request: Request) -> int:
    text = request.query_params.get("page_size", str(PAGE_SIZE))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MOST_ROWS):
        raise refusal("page_size", _("The page size is a whole number from 1 to %(most)d.") % {"most": MOST_ROWS})
    return int(text)


def _order(text: str, listing: Listing) -> tuple[str, ...]:
    names = tuple(text.split(","))
    columns = [name.removeprefix("-") for name in names]
    if not set(columns) <= {*listing.orderings, "id"} or len(set(columns)) < len(columns):
        told = _("Order by any of %(known)s, each once, with - for falling.")
        raise refusal("ordering", told % {"known": ", ".join((*listing.orderings, "id"))})
    return names


def _tie_breaker(order: tuple[str, ...]) -> str:
    """Return the order of ids: it falls with the last column, so that one index serves both."""
    return "-id" if order[-1].startswith("-") else "id"


def _turned(order: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.removeprefix("-") if name.startswith("-") else f"-{name}" for name in order)


def _beyond(order: tuple[str, ...], values: tuple[Any, ...]) -> Q:
    """Return what keeps the rows that come after one with these values.

    The bound on the first column says nothing new; it lets the database begin in the index where the page begins.
    """
    alternatives, same = [], Q()
    for name, value in zip(order, values, strict=True):
        column, is_falling = name.removeprefix("-"), name.startswith("-")
        alternatives.append(same & Q(**{f"{column}__{'lt' if is_falling else 'gt'}": value}))
        same &= Q(**{column: value})
    first = order[0].removeprefix("-")
    bound = Q(**{f"{first}__{'lte' if order[0].startswith('-') else 'gte'}": values[0]})
    return bound & reduce(or_, alternatives)


def _address(request: Request, order: tuple[str, ...], row: Any, *, is_back: bool) -> str:
    columns = [name.removeprefix("-") for name in order]
    values = [attrgetter(column.replace("__", "."))(row) for column in columns]
    document = [",".join(order), is_back, [_text(value) for value in values]]
    cursor = base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()
    return str(replace_query_param(request.build_absolute_uri(), "cursor", cursor))


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _read_cursor(text: str, model: type[Model], order: tuple[str, ...]) -> tuple[bool, tuple[Any, ...]]:
    try:
        document = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        named, is_back, values = document if len(text) <= _MOST_CURSOR else ("", False, [])
        if named != ",".join(order) or not isinstance(is_back, bool) or len(values) != len(order):
            raise ValueError("another order")
        columns = (name.removeprefix("-") for name in order)
        return is_back, tuple(
            _value(model, column, str(value), "cursor") for column, value in zip(columns, values, strict=True)
        )
    except (ValueError, TypeError, binascii.Error, ValidationFailed):
        raise refusal("cursor", _("This cursor is none of this list in this order; begin without one.")) from None


def _value(model: type[Model], path: str, text: str, parameter: str) -> Any:
    """Return a text of the address as a value of the column. Raises ValidationFailed for what it cannot hold."""
    field = _field(model, path)
    if field is None:
        raise refusal(parameter, _("“%(value)s” cannot be meant here.") % {"value": text[:100]})
    if isinstance(field, BooleanField) and text in ("true", "false"):  # as JSON writes them
        return text == "true"
    try:
        is_checked = field.choices or not field.empty_strings_allowed
        found = field.clean(text, None) if is_checked else field.to_python(text)
        return found.astimezone(UTC) if isinstance(found, datetime) and found.tzinfo is not None else found
    except OverflowError:  # a day that only a far zone has
        raise refusal(parameter, _("“%(value)s” cannot be meant here.") % {"value": text[:100]}) from None
    except DjangoValidationError:
        if field.choices:
            known = ", ".join(str(value) for value, _label in field.flatchoices)
            message = _("“%(value)s” is none of: %(known)s.") % {"value": text[:100], "known": known}
        else:
            message = _("“%(value)s” cannot be meant here.") % {"value": text[:100]}
        raise refusal(parameter, message) from None


def _field(model: type[Model], path: str) -> Field[Any, Any] | None:
    """Return the column at the end of a path such as ``model__slug``; None when there is none."""
    found: Any = None
    try:
        for name in path.split("__"):
            found = model._meta.get_field(name)
            model = getattr(found, "related_model", None) or model
    except FieldDoesNotExist:
        return None
    return found.target_field if isinstance(found, ForeignKey) else found
