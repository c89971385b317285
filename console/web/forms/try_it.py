"""The try-it form: reads tensors as people type them and makes a v2 inference request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from console.web.samples import MOST_ELEMENTS, SampleInput, values

FILLS = ("typed", "random", "zeros", "ones")


class TryForm(forms.Form):
    """For each input: ``shape-<n>``, ``fill-<n>`` and ``data-<n>``; ``unit`` chooses one, empty means the split.

    ``beside`` names another that gets the same request.
    """

    def __init__(
        self, samples: Sequence[SampleInput], units: Sequence[tuple[str, str]], data: Any = None, initial: Any = None
    ) -> None:
        super().__init__(data, initial=initial)
        self.samples = samples
        self.fields["unit"] = forms.ChoiceField(
            required=False,
            choices=[("", _("By traffic split")), *units],
            label=_("Version"),
            widget=forms.Select(attrs={"class": "select", "data-testid": "try-version"}),
        )
        self.fields["beside"] = forms.ChoiceField(
            required=False,
            choices=[("", _("nothing")), *units],
            label=_("Beside it"),
            help_text=_("The same request goes to both, and what differs is marked."),
            widget=forms.Select(attrs={"class": "select", "data-testid": "try-beside"}),
        )
        for number, sample in enumerate(samples):
            self.fields[f"shape-{number}"] = forms.CharField(initial=sample.shape_text, label=_("Shape"))
            self.fields[f"fill-{number}"] = forms.ChoiceField(
                initial=sample.fill, choices=[(fill, fill) for fill in FILLS], label=_("Values")
            )
            self.fields[f"data-{number}"] = forms.CharField(initial=sample.data, required=False, label=_("Data"))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("beside") and not cleaned.get("unit"):
            self.add_error("unit", _("Choose the version that is compared."))
        elif cleaned.get("beside") and cleaned["beside"] == cleaned["unit"]:
            self.add_error("beside", _("Choose two that are not the same."))
        cleaned["inputs"] = []
        for number, sample in enumerate(self.samples):
            try:
                cleaned["inputs"].append(self._tensor(number, sample, cleaned))
            except forms.ValidationError as error:
                self.add_error(f"data-{number}", error)
        return cleaned

    def _tensor(self, number: int, sample: SampleInput, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        words = [word for word in re.split(r"[\s,\[\]x×]+", cleaned.get(f"shape-{number}", "")) if word]  # noqa: RUF001
        if not all(word.isdigit() for word in words):
            raise forms.ValidationError(_("A shape is whole numbers separated by commas, for example 1, 16."))
        shape = tuple(int(word) for word in words)
        if math.prod(shape) > MOST_ELEMENTS:
            raise forms.ValidationError(
                _("That is too much for a try: %(count)d elements.") % {"count": math.prod(shape)}
            )
        fill = cleaned.get(f"fill-{number}", "typed")
        data = values(sample.datatype, shape, fill) if fill != "typed" else self._typed(number, shape, cleaned)
        return {"name": sample.name, "datatype": sample.datatype, "shape": list(shape), "data": data}

    @staticmethod
    def _typed(number: int, shape: tuple[int, ...], cleaned: Mapping[str, Any]) -> list[Any]:
        text = cleaned.get(f"data-{number}", "")
        try:
            data = json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(_("The data is not JSON: %(why)s") % {"why": error}) from error
        flat = list(_flat(data)) if isinstance(data, list) else [data]
        if len(flat) != math.prod(shape):
            raise forms.ValidationError(
                _("The shape has %(want)d elements, the data has %(have)d.")
                % {"want": math.prod(shape), "have": len(flat)}
            )
        return flat

    def rows(self) -> list[tuple[SampleInput, forms.BoundField, forms.BoundField, forms.BoundField]]:
        """Return each input with its three fields."""
        return [
            (sample, self[f"shape-{number}"], self[f"fill-{number}"], self[f"data-{number}"])
            for number, sample in enumerate(self.samples)
        ]


def _flat(data: list[Any]) -> Any:
    for one in data:
        if isinstance(one, list):
            yield from _flat(one)
        else:
            yield one
