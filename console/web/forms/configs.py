"""The config form. Its fields and limits are the contract's; what a config may say, the contract checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.config_fields import flatten, name_of, read
from console.web.config_nodes import FieldGroup, form_groups
from console.web.forms.styling import StyledForm


class ConfigForm(StyledForm):
    """All fields of a config, made from the contract's catalogue. ``body`` is the document that was typed."""

    comment = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("What changed and why"),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    test_ids = {"comment": "config-comment"}

    def __init__(self, parent: Mapping[str, Any], data: Any = None) -> None:
        super().__init__(data)
        self._flat = flatten(parent) if data is None else {name: str(data[name]) for name in data}
        self.body, self._problems = read(self._flat)

    def is_valid(self) -> bool:
        """Return whether all that was typed could be read."""
        return super().is_valid() and not self._problems

    def groups(self) -> list[FieldGroup]:
        """Return what the page shows."""
        return form_groups(self._flat, self._problems)

    def problems(self) -> dict[str, list[str]]:
        """Return the sentences at each field, by its name."""
        return self._problems

    def show(self, errors: Any) -> None:
        """Show the contract's errors (``{"field", "message"}``) at the fields they are about."""
        for problem in errors:
            name = name_of(problem.get("field", ""), self._flat)
            if name:
                self._problems.setdefault(name, []).append(problem["message"])
            else:
                self.add_error(None, problem["message"])


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
