"""Forms of the page about what a project asks of new versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from registry.domain.licences import LicencePolicy, Treatment
from registry.domain.sizes import GIB, MAX_THRESHOLD, THRESHOLDS, Limit

_TREATMENTS = [
    (Treatment.ACCEPT.value, gettext_lazy("Accept")),
    (Treatment.REVIEW.value, gettext_lazy("Warn, so that somebody looks at it")),
    (Treatment.REFUSE.value, gettext_lazy("Refuse")),
]


def limit_facts(limits: Mapping[str, Limit]) -> dict[str, Any]:
    """Return limits as the values of the form; sizes in GiB."""
    return {
        f"{measure}_{name}": _shown(measure, getattr(limit, name))
        for measure, limit in limits.items()
        for name in THRESHOLDS
    }


def _shown(measure: str, value: int | None) -> float | int | None:
    return value if value is None or measure == "files" else round(value / GIB, 3)


def _gibibytes(label: Any) -> forms.FloatField:
    return forms.FloatField(required=False, min_value=0.001, max_value=MAX_THRESHOLD / GIB, label=label)


def _count(label: Any) -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=1, max_value=MAX_THRESHOLD, label=label)


class SizeLimitsForm(EditForm):
    """How large versions may be. An empty field: no such threshold."""

    total_bytes_warn = _gibibytes(gettext_lazy("All files together, warn above (GiB)"))
    total_bytes_fail = _gibibytes(gettext_lazy("All files together, refuse above (GiB)"))
    file_bytes_warn = _gibibytes(gettext_lazy("One file, warn above (GiB)"))
    file_bytes_fail = _gibibytes(gettext_lazy("One file, refuse above (GiB)"))
    files_warn = _count(gettext_lazy("Number of files, warn above"))
    files_fail = _count(gettext_lazy("Number of files, refuse above"))
    test_ids = {
        f"{measure}_{name}": f"size-{measure}-{name}" for measure in ("total_bytes", "files") for name in THRESHOLDS
    }

    def limits(self, now: Mapping[str, Limit]) -> dict[str, dict[str, int | None]]:
        """Return the limits that were typed; a size that was left alone is not rounded. ``now``: those in force."""
        return {
            measure: {name: self._typed(measure, name, getattr(limit, name)) for name in THRESHOLDS}
            for measure, limit in now.items()
        }

    def _typed(self, measure: str, name: str, now: int | None) -> int | None:
        field = f"{measure}_{name}"
        value = self.cleaned_data[field]
        if value is None or value == self.initial[field]:
            return now if value is not None else None
        return int(value) if measure == "files" else max(1, round(value * GIB))


class LicencePolicyForm(EditForm):
    """What the project thinks of licences."""

    allowed = forms.CharField(
        required=False,
        max_length=20_000,
        label=gettext_lazy("Allowed"),
        help_text=gettext_lazy("One name of SPDX a line: Apache-2.0. A beginning: BSD-*. Your own: LicenseRef-acme."),
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "textarea mono"}),
    )
    forbidden = forms.CharField(
        required=False,
        max_length=20_000,
        label=gettext_lazy("Forbidden"),
        help_text=gettext_lazy("Goes before what is allowed: AGPL-*, CC-BY-NC-*."),
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "textarea mono"}),
    )
    unlisted = forms.ChoiceField(choices=_TREATMENTS, label=gettext_lazy("A licence on neither list"))
    missing = forms.ChoiceField(choices=_TREATMENTS, label=gettext_lazy("A version that states none"))
    test_ids = {"allowed": "licence-allowed", "forbidden": "licence-forbidden", "unlisted": "licence-unlisted"}

    def policy(self) -> dict[str, Any]:
        """Return the policy that was typed, as JSON values."""
        given = self.cleaned_data
        lists = {name: [line.strip() for line in given[name].splitlines() if line.strip()] for name in _LISTS}
        return {**lists, "unlisted": given["unlisted"], "missing": given["missing"]}


_LISTS = ("allowed", "forbidden")


def licence_facts(policy: LicencePolicy) -> dict[str, Any]:
    """Return a policy as the values of the form."""
    document = policy.to_json()
    return {**document, **{name: "\n".join(document[name]) for name in _LISTS}}
