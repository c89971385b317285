"""The config form. Limits that the contract knows are checked by the contract; the form only reads what was typed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.config_body import body_of, field_of, groups_of, initial_of
from console.web.forms.styling import StyledForm
from serving_node.contract.fields import FIELDS, FIELDS_BY_PATH, FieldSpec, Group, Kind, Shape

KINDS = tuple((choice.value, choice.label) for choice in FIELDS_BY_PATH["instance_group[].kind"].choices)
MOST_GROUPS = 32
_ROW = re.compile(r"group-(\d+)-count")


class NumbersField(forms.CharField):
    """Whole numbers separated by commas or spaces."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        numbers = []
        for word in re.split(r"[,\s]+", text.strip()):
            if not word:
                continue
            if not word.isascii() or not word.isdigit():
                raise forms.ValidationError(_("“%(word)s” is not a whole number.") % {"word": word})
            numbers.append(int(word))
        return numbers


class JsonField(forms.CharField):
    """A JSON object."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        try:
            document = json.loads(text or "{}")
        except ValueError as error:
            raise forms.ValidationError(_("This is not JSON: %(why)s") % {"why": error}) from error
        if not isinstance(document, dict):
            raise forms.ValidationError(_("This must be a JSON object."))
        return document


# Form field -> field of the contract, in the order of the form. Labels, help, limits and choices come from there.
PATHS = {
    "max_batch_size": "max_batch_size",
    "dynamic_batching": "dynamic_batching",
    "preferred_batch_size": "dynamic_batching.preferred_batch_size",
    "max_queue_delay_microseconds": "dynamic_batching.max_queue_delay_microseconds",
    "preserve_ordering": "dynamic_batching.preserve_ordering",
    "max_queue_size": "dynamic_batching.default_queue_policy.max_queue_size",
    "default_timeout_microseconds": "dynamic_batching.default_queue_policy.default_timeout_microseconds",
    "timeout_action": "dynamic_batching.default_queue_policy.timeout_action",
    "allow_timeout_override": "dynamic_batching.default_queue_policy.allow_timeout_override",
    "response_cache": "response_cache.enable",
}
_ELSEWHERE = ("input", "output", "instance_group[].count", "instance_group[].kind", "instance_group[].gpus")


def field_for(spec: FieldSpec) -> forms.Field:
    """Return the form field of a contract field. A section is a switch: it is there or not."""
    texts: dict[str, Any] = {"label": spec.label, "help_text": _help(spec)}
    if spec.kind in {Kind.SWITCH, Kind.SECTION}:
        return forms.BooleanField(required=False, **texts)
    if spec.kind is Kind.CHOICE:
        return forms.ChoiceField(choices=[(choice.value, choice.label) for choice in spec.choices], **texts)
    if spec.shape is Shape.LIST:
        return NumbersField(required=False, **texts)
    return forms.IntegerField(min_value=_whole(spec.minimum), max_value=_whole(spec.maximum), **texts)


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)


def _help(spec: FieldSpec) -> str:
    """Return the field's sentence with its unit and lower limit."""
    parts = [spec.help]
    if spec.unit == "microseconds":
        parts.append(_("In microseconds: 1000 are 1 ms."))
    elif spec.kind is Kind.INTEGER and spec.minimum is not None and spec.minimum >= 0:
        parts.append(_("At least %(minimum)d.") % {"minimum": spec.minimum})
    return " ".join(parts)


def reference() -> list[tuple[Group, list[FieldSpec]]]:
    """Return the contract's fields that the form shows as JSON only, by group."""
    shown = {*PATHS.values(), "dynamic_batching", "instance_group", "response_cache", *_ELSEWHERE}
    rest = [spec for spec in FIELDS if spec.path not in shown and not spec.path.startswith(("input", "output"))]
    return [(group, found) for group in Group if (found := [spec for spec in rest if spec.group is group])]


class ConfigForm(StyledForm):
    """The fields shown by themselves, made from the contract's catalogue, and the rest of the document as JSON."""

    advanced = JsonField(
        required=False,
        label=gettext_lazy("Everything else (JSON)"),
        help_text=gettext_lazy("All other fields of the model configuration, with the names of config.pbtxt."),
        widget=forms.Textarea(
            attrs={"rows": 16, "spellcheck": "false", "class": "textarea mono", "autocomplete": "off"}
        ),
    )
    comment = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("What changed and why"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    test_ids = {name: f"config-{name.replace('_', '-')}" for name in (*PATHS, "advanced", "comment")}

    def __init__(self, parent: Mapping[str, Any], data: Any = None) -> None:
        super().__init__(data, initial=initial_of(parent))
        self.parent = parent
        self.group_errors: list[str] = []
        self.rows = self._rows_of(data) if data is not None else groups_of(parent)

    @staticmethod
    def _rows_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the typed instance groups as text, in the order of their numbers."""
        numbers = sorted(int(match[1]) for key in data if (match := _ROW.fullmatch(key)))
        return [
            {
                "count": data.get(f"group-{number}-count", ""),
                "kind": data.get(f"group-{number}-kind", "KIND_AUTO"),
                "gpus": data.get(f"group-{number}-gpus", ""),
            }
            for number in numbers[:MOST_GROUPS]
        ]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        groups = []
        for number, row in enumerate(self.rows, start=1):
            try:
                gpus = [int(word) for word in re.split(r"[,\s]+", str(row["gpus"]).strip()) if word]
                groups.append({"count": int(row["count"]), "kind": row["kind"], "gpus": gpus})
            except ValueError:
                self.group_errors.append(_("Group %(number)d: count and GPUs are whole numbers.") % {"number": number})
        if self.group_errors:
            raise forms.ValidationError(_("The instance groups cannot be read."))
        cleaned["groups"] = groups
        return cleaned

    def body(self) -> dict[str, Any]:
        """Return the document that was typed (after ``is_valid``)."""
        return body_of(self.parent, self.cleaned_data, self.cleaned_data["groups"])

    def show(self, errors: Any) -> None:
        """Show the contract's errors (``{"field", "message"}``) at the fields they are about."""
        for problem in errors:
            name = field_of(problem.get("field", ""))
            if name == "instance_group":
                self.group_errors.append(problem["message"])
            else:
                self.add_error(name if name in self.fields else None, problem["message"])


ConfigForm.base_fields.update({name: field_for(FIELDS_BY_PATH[path]) for name, path in PATHS.items()})


class ConfigTextForm(StyledForm):
    """The whole config as text."""

    format = forms.ChoiceField(choices=[("pbtxt", "config.pbtxt"), ("json", "JSON")], label=gettext_lazy("Format"))
    text = forms.CharField(
        label=gettext_lazy("Config"),
        strip=False,
        max_length=1_000_000,
        widget=forms.Textarea(
            attrs={"rows": 30, "spellcheck": "false", "class": "textarea mono", "autocomplete": "off"}
        ),
    )
    comment = forms.CharField(required=False, max_length=500, label=gettext_lazy("What changed and why"))
    test_ids = {"text": "config-text", "format": "config-format", "comment": "config-comment"}
