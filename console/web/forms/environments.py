"""Forms of the pages about environments and fleets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.forms import BaseFormSet, formset_factory
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.domain.checks import CHECK_KINDS
from registry.domain.durations import minutes_text, read_minutes
from registry.domain.protection import MAX_APPROVALS, MAX_WAIT_MINUTES
from registry.domain.windows import MAX_WINDOWS, read_windows
from registry.errors import ValidationFailed
from registry.models import Environment, Fleet
from registry.selectors.protection import protection_json
from registry.services.environments import MAX_VALID_HOURS

_CHECK = "check_"


def protection_facts(environment: Environment) -> dict[str, Any]:
    """Return what its page shows of an environment, as the form's values; ``windows`` are beside the form."""
    facts = dict(protection_json(environment))
    required = {one["kind"]: one for one in environment.required_checks}
    for name in ("approvers", "bypassers"):
        facts[name] = ", ".join(user.username for user in getattr(environment, name).order_by("username"))
    for kind in CHECK_KINDS:
        facts[_CHECK + kind] = ("warn" if required[kind]["allow_warn"] else "pass") if kind in required else ""
    del facts["required_checks"]
    return {"name": environment.name, **facts, "wait_minutes": minutes_text(environment.wait_minutes)}


class ProtectionForm(EditForm):
    """Every rule of an environment but its windows, which are a form each."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    requires_approval = forms.BooleanField(required=False, label=gettext_lazy("Changes need approval"))
    required_approvals = forms.IntegerField(
        min_value=1, max_value=MAX_APPROVALS, label=gettext_lazy("Approvals needed")
    )
    approval_valid_hours = forms.IntegerField(
        min_value=1,
        max_value=MAX_VALID_HOURS,
        label=gettext_lazy("A request is valid for so many hours"),
        help_text=gettext_lazy("Then it expires. One that waits for its time lives so long after that time."),
    )
    approvers = forms.CharField(
        required=False,
        max_length=8000,
        label=gettext_lazy("Only these people approve"),
        help_text=gettext_lazy("User names with commas. Empty, with no role below: everybody who has the role to."),
    )
    approver_role = forms.ChoiceField(
        required=False,
        choices=[
            ("", gettext_lazy("No role")),
            ("approver", gettext_lazy("Approver or more")),
            ("operator", gettext_lazy("Operator or more")),
            ("admin", gettext_lazy("Administrator")),
        ],
        label=gettext_lazy("And members with the role"),
        help_text=gettext_lazy("Their role in the project of the model. One of all these is as good as another."),
    )
    wait_minutes = forms.CharField(
        max_length=10,
        label=gettext_lazy("Wait after the approval"),
        help_text=gettext_lazy("Such as 30m, 12h or 2d; at most 30d. Meanwhile it can still be rejected."),
    )
    admins_bypass = forms.BooleanField(required=False, label=gettext_lazy("Site administrators may bypass the rules"))
    bypassers = forms.CharField(
        required=False,
        max_length=8000,
        label=gettext_lazy("These may bypass the rules, too"),
        help_text=gettext_lazy(
            "User names with commas. They give a reason, which everybody sees. Service accounts only when named."
        ),
    )
    test_ids = {
        "requires_approval": "environment-requires",
        "required_approvals": "environment-required",
        "approvers": "environment-approvers",
        "wait_minutes": "environment-wait",
        "admins_bypass": "environment-admins-bypass",
    }

    def __init__(self, data: Any = None, *, environment: Environment) -> None:
        super().__init__(data, now=protection_facts(environment))
        for kind in CHECK_KINDS.values():
            self.fields[_CHECK + kind.name] = forms.ChoiceField(
                required=False,
                label=kind.label,
                choices=[("", _("not required")), ("pass", _("must pass")), ("warn", _("must pass or warn"))],
                help_text=kind.explanation,
                widget=forms.Select(attrs={"class": "select", "data-testid": f"environment-check-{kind.name}"}),
                initial=self.initial.get(_CHECK + kind.name, ""),
            )

    def checks(self) -> Iterable[forms.BoundField]:
        """Return the field of each kind of check."""
        return [self[_CHECK + kind] for kind in CHECK_KINDS]

    def clean_wait_minutes(self) -> int:
        minutes = read_minutes(self.cleaned_data["wait_minutes"])
        if minutes is None or minutes > MAX_WAIT_MINUTES:
            raise forms.ValidationError(_("Write it such as 30m, 12h or 2d; at most 30d."))
        return minutes

    def clean_approvers(self) -> list[str]:
        return words(self.cleaned_data["approvers"])

    def clean_bypassers(self) -> list[str]:
        return words(self.cleaned_data["bypassers"])

    def changes(self) -> dict[str, Any]:
        """Return what the service takes, without the windows."""
        given = {name: value for name, value in self.cleaned_data.items() if not name.startswith(_CHECK)}
        chosen = {kind: self.cleaned_data.get(_CHECK + kind) for kind in CHECK_KINDS}
        required = [{"kind": kind, "allow_warn": word == "warn"} for kind, word in chosen.items() if word]
        return {**given, "required_checks": required}


class WindowForm(StyledForm):
    """One window; without a cron expression there is none."""

    name = forms.CharField(required=False, max_length=100, label=gettext_lazy("Name"))
    effect = forms.ChoiceField(
        choices=[("deny", gettext_lazy("No changes")), ("allow", gettext_lazy("Changes only then"))],
        initial="deny",
        label=gettext_lazy("While it lasts"),
    )
    cron = forms.CharField(
        required=False,
        max_length=100,
        label=gettext_lazy("Begins"),
        help_text=gettext_lazy("Cron: minute, hour, day, month, weekday. Empty: no window."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "class": "input mono", "placeholder": "0 18 * * FRI"}),
    )
    lasts = forms.CharField(
        required=False, max_length=10, label=gettext_lazy("Lasts"), help_text=gettext_lazy("Such as 90m, 62h or 2d.")
    )
    time_zone = forms.CharField(
        required=False,
        max_length=100,
        label=gettext_lazy("Time zone"),
        help_text=gettext_lazy("Such as Europe/Berlin. Empty: UTC."),
        widget=forms.TextInput(attrs={"spellcheck": "false"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not cleaned.get("cron") or self.errors:
            return cleaned
        try:
            read_windows([self.document()])
        except ValidationFailed as error:
            for problem in error.errors:
                name = problem["field"].rpartition(".")[2]
                self.add_error("lasts" if name == "duration_minutes" else name, problem["message"])
        return cleaned

    def document(self) -> dict[str, Any]:
        """Return the window as JSON."""
        given = self.cleaned_data
        return {
            "name": given["name"],
            "effect": given["effect"],
            "cron": given["cron"],
            "duration_minutes": read_minutes(given["lasts"]) or 0,
            "time_zone": given["time_zone"] or "UTC",
        }


# One empty one more than there are.
Windows = formset_factory(WindowForm, extra=1, max_num=MAX_WINDOWS, absolute_max=MAX_WINDOWS + 1)


def windows_form(environment: Environment, data: Any = None) -> BaseFormSet[WindowForm]:
    """Return the forms of an environment's windows."""
    initial = [{**one, "lasts": minutes_text(one["duration_minutes"])} for one in environment.windows]
    return Windows(data, prefix="windows", initial=initial)


def windows_given(forms: BaseFormSet[WindowForm]) -> list[dict[str, Any]]:
    """Return the windows of valid forms; those without a cron expression are left out."""
    return [form.document() for form in forms if form.cleaned_data.get("cron")]


def fleet_facts(fleet: Fleet) -> dict[str, Any]:
    """Return what its page shows of a fleet, as the form's values."""
    return {"name": fleet.name, "labels": labels_text(fleet.selector)}


class FleetForm(EditForm):
    """A fleet that exists."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    labels = forms.CharField(
        required=False,
        max_length=2000,
        label=gettext_lazy("Labels of its nodes"),
        help_text=gettext_lazy(
            "As key=value, with commas. A node belongs to it that carries all of them; empty: every node."
        ),
        widget=forms.TextInput(attrs={"spellcheck": "false", "class": "input mono"}),
    )
    test_ids = {"name": "fleet-name", "labels": "fleet-labels"}

    def __init__(self, data: Any = None, *, fleet: Fleet) -> None:
        super().__init__(data, now=fleet_facts(fleet))

    def clean_labels(self) -> dict[str, str]:
        labels = {}
        for part in words(self.cleaned_data["labels"]):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise forms.ValidationError(_("“%(part)s” is not key=value.") % {"part": part})
            labels[key.strip()] = value.strip()
        return labels

    def selector(self) -> dict[str, str]:
        """Return the labels of a valid form."""
        found: dict[str, str] = self.cleaned_data["labels"]
        return found


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as people write them."""
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def words(text: str) -> list[str]:
    """Return what stands between commas, without spaces around it; nothing that is empty."""
    return [part.strip() for part in text.split(",") if part.strip()]
