"""Types of JSON in bodies: what the description calls a text, a number or true and false, is none in another guise.

The fields of the framework also read forms, where all is text: they take 5 for "5", "5" for 5 and "yes" for true.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

_TEXTS = (serializers.CharField, serializers.UUIDField, serializers.DateTimeField, serializers.SlugRelatedField)


def validated(given: serializers.BaseSerializer[Any]) -> dict[str, Any]:
    """Return what a serializer makes of its JSON ``data``. Raises ValidationError with the fields."""
    if wrong := type_errors(given, given.initial_data):
        raise serializers.ValidationError(wrong)
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


def type_errors(field: Any, value: Any) -> Any:
    """Return what has the wrong type in a value for a field of a serializer: messages, nested as the framework nests.

    Objects and lists that are none, null where it is not allowed and what is missing are left to the framework.
    """
    if value is None or getattr(field, "read_only", False):
        return None
    if isinstance(field, serializers.ListSerializer):
        rows = [type_errors(field.child, one) or {} for one in value] if isinstance(value, list) else []
        return rows if any(rows) else None
    if isinstance(field, serializers.ListField):
        return _of_each(field.child, enumerate(value)) if isinstance(value, list) else None
    if isinstance(field, serializers.DictField):
        return _of_each(field.child, value.items()) if isinstance(value, dict) else None
    if isinstance(field, serializers.Serializer):
        return _of_fields(field, value) if isinstance(value, dict) else None
    told = _problem(field, value)
    return [told] if told else None


def _of_each(child: Any, values: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    return {str(key): found for key, value in values if (found := type_errors(child, value))}


def _of_fields(serializer: Any, document: dict[str, Any]) -> dict[str, Any]:
    fields = serializer.fields
    return {name: found for name in fields if name in document and (found := type_errors(fields[name], document[name]))}


def _problem(field: Any, value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(field, _TEXTS) or _takes_texts(field):
        return "" if isinstance(value, str) else _("This is no text; put it in quotes.")
    if isinstance(field, serializers.IntegerField):
        is_whole = is_number and (isinstance(value, int) or value.is_integer())
        return "" if is_whole else _("This is no whole number.")
    if isinstance(field, serializers.FloatField | serializers.DecimalField):
        return "" if is_number else _("This is no number.")
    if isinstance(field, serializers.BooleanField):
        return "" if isinstance(value, bool) else _("This is neither true nor false.")
    return ""


def _takes_texts(field: Any) -> bool:
    return isinstance(field, serializers.ChoiceField) and all(isinstance(one, str) for one in field.choices)
