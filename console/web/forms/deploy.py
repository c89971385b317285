"""The form that puts a version on a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.models import ConfigRevision, Fleet, ModelVersion


class DeployForm(StyledForm):
    """Version, config, fleet and how the traffic gets there."""

    version = forms.TypedChoiceField(coerce=int, label=gettext_lazy("Version"))
    config = forms.TypedChoiceField(coerce=int, label=gettext_lazy("Config"))
    fleet = forms.ChoiceField(label=gettext_lazy("Fleet"))
    strategy = forms.ChoiceField(
        label=gettext_lazy("Traffic"),
        widget=forms.RadioSelect(attrs={"class": "radio radio-sm"}),
        choices=[
            ("replace", gettext_lazy("All traffic goes to this version")),
            ("canary", gettext_lazy("A canary beside what is live")),
        ],
        initial="replace",
    )
    weight = forms.IntegerField(
        min_value=0,
        max_value=100,
        initial=10,
        label=gettext_lazy("Canary share"),
        help_text=gettext_lazy("Percent of the requests. It can be moved later without a new approval."),
        error_messages={"required": gettext_lazy("Say how many percent the canary gets.")},
    )
    sticky = forms.CharField(
        required=False,
        max_length=100,
        label=gettext_lazy("Sticky key"),
        help_text=gettext_lazy("Header or parameter whose value keeps a caller on one version, for example x-user-id."),
    )
    comment = forms.CharField(
        required=False,
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        label=gettext_lazy("Why"),
        help_text=gettext_lazy("Reviewers and the audit trail show it."),
    )
    test_ids = {
        "version": "deploy-version",
        "config": "deploy-config",
        "fleet": "deploy-fleet",
        "weight": "deploy-weight",
        "comment": "deploy-comment",
    }

    def __init__(
        self,
        data: Any = None,
        *,
        versions: Sequence[ModelVersion],
        configs: Sequence[ConfigRevision],
        fleets: Sequence[Fleet],
        initial: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(data, initial=initial)
        self.fields["weight"].required = data is None or data.get("strategy") == "canary"
        self.versions = versions
        choices: dict[str, list[tuple[Any, str]]] = {
            "version": [(one.number, self._label(one)) for one in versions],
            "config": [(0, _("Newest (config %(number)d)") % {"number": configs[0].number} if configs else _("Newest"))]
            + [
                (
                    one.number,
                    _("Config %(number)d") % {"number": one.number} + (f" · {one.comment}" if one.comment else ""),
                )
                for one in configs
            ],
            "fleet": [(one.slug, f"{one.name} · {self._protection(one)}") for one in fleets],
        }
        for name, values in choices.items():
            self.fields[name].choices = values  # type: ignore[attr-defined]

    @staticmethod
    def _label(version: ModelVersion) -> str:
        names = ", ".join(version.alias_names)
        return f"v{version.number} · {version.format or _('unknown format')}" + (f" · {names}" if names else "")

    @staticmethod
    def _protection(fleet: Fleet) -> str:
        return _("needs approval") if fleet.environment.requires_approval else _("no approval needed")
