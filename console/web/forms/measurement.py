"""The form that asks for a measurement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.domain.measurements import DEFAULT_SECONDS
from registry.models import ConfigRevision, ServingNode

_MONO = {"class": "input mono", "spellcheck": "false", "autocomplete": "off"}


class MeasurementForm(StyledForm):
    """Which node, which config, and the grid. Numbers are separated by commas; empty batch sizes mean the usual."""

    node = forms.ChoiceField(label=gettext_lazy("Node"))
    config = forms.ChoiceField(label=gettext_lazy("Config"))
    batch = forms.CharField(
        max_length=200,
        label=gettext_lazy("Batch sizes"),
        help_text=gettext_lazy("Rows of one request, up to the config's max_batch_size."),
        widget=forms.TextInput(attrs=_MONO),
    )
    instances = forms.CharField(
        max_length=100,
        initial="1",
        label=gettext_lazy("Instance counts"),
        help_text=gettext_lazy("The copy is loaded anew for each."),
        widget=forms.TextInput(attrs=_MONO),
    )
    seconds = forms.FloatField(
        initial=DEFAULT_SECONDS,
        label=gettext_lazy("Seconds for each combination"),
        widget=forms.NumberInput(attrs={"class": "input", "step": "any"}),
    )
    shapes = forms.CharField(
        required=False,
        max_length=1000,
        label=gettext_lazy("Sizes of dynamic inputs"),
        help_text=gettext_lazy("Without the batch, as input=3,224,224, separated by spaces. Else each is 1."),
        widget=forms.TextInput(attrs=_MONO),
    )
    test_ids = {name: f"measure-{name}" for name in ("node", "config", "batch", "instances", "seconds", "shapes")}

    def __init__(
        self, *args: Any, nodes: Sequence[ServingNode], configs: Sequence[ConfigRevision], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["node"].choices = [(str(node.pk), node.name) for node in nodes]  # type: ignore[attr-defined]
        self.fields["config"].choices = [  # type: ignore[attr-defined]
            (str(config.number), f"{config.number} · {config.comment}" if config.comment else str(config.number))
            for config in configs
        ]

    def clean_batch(self) -> list[int]:
        return _numbers(self.cleaned_data["batch"])

    def clean_instances(self) -> list[int]:
        return _numbers(self.cleaned_data["instances"])

    def clean_shapes(self) -> dict[str, list[int]]:
        shapes = {}
        for part in self.cleaned_data["shapes"].split():
            name, equals, sizes = part.rpartition("=")
            if not equals or not name:
                raise forms.ValidationError(_("“%(part)s” is not input=sizes.") % {"part": part})
            shapes[name] = _numbers(sizes)
        return shapes


def _numbers(text: str) -> list[int]:
    words = [word for word in re.split(r"[\s,]+", text) if word]
    if not words or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise forms.ValidationError(_("Whole numbers separated by commas, such as 1, 8, 32."))
    return [int(word) for word in words]
