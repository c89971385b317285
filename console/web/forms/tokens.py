"""Forms of the pages about API keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.models import ApiToken, Project


def _lifetimes(first: tuple[str, Any] | None = None) -> list[tuple[str, Any]]:
    """Return what a key may last here."""
    known: list[tuple[str, Any]] = [
        ("1", gettext_lazy("1 day")),
        ("30", gettext_lazy("30 days")),
        ("90", gettext_lazy("90 days")),
        ("365", gettext_lazy("1 year")),
        ("", gettext_lazy("Never")),
    ]
    most = settings.TOKEN_MAX_DAYS
    if most:
        known = [(days, label) for days, label in known if days and int(days) <= most]
        if str(most) not in dict(known):
            known.append((str(most), gettext_lazy("as long as is allowed")))
    return [*([first] if first else []), *known]


def _end(days: str) -> datetime | None:
    return timezone.now() + timedelta(days=int(days)) if days else None


class _NetworksField(forms.CharField):
    """Ranges of addresses, with commas or on lines."""

    def __init__(self) -> None:
        super().__init__(
            required=False,
            max_length=2000,
            label=gettext_lazy("Only from"),
            help_text=gettext_lazy("Addresses or ranges like 10.1.0.0/16, with commas. Empty: from everywhere."),
            widget=forms.TextInput(attrs={"spellcheck": "false", "class": "input mono"}),
        )

    def clean(self, value: Any) -> Any:
        """Return the list of ranges."""
        text = super().clean(value)
        return text.replace(",", " ").split()


class TokenForm(StyledForm):
    """A new API token."""

    name = forms.CharField(
        max_length=200,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("What it is for, for example CI of sentiment."),
    )
    scope = forms.ChoiceField(
        choices=[
            ("read", gettext_lazy("Read")),
            ("write", gettext_lazy("Read and write")),
            ("admin", gettext_lazy("Everything you may do")),
        ],
        initial="write",
        label=gettext_lazy("Scope"),
    )
    project = forms.ModelChoiceField(
        Project.objects.none(),
        required=False,
        to_field_name="slug",
        label=gettext_lazy("Only in project"),
        empty_label=gettext_lazy("All your projects"),
    )
    lifetime = forms.ChoiceField(required=False, initial="90", label=gettext_lazy("Ends after"))
    networks = _NetworksField()
    test_ids = {"name": "token-name", "scope": "token-scope", "project": "token-project", "lifetime": "token-lifetime"}

    def __init__(self, *args: Any, projects: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project"].queryset = projects  # type: ignore[attr-defined]
        self.fields["lifetime"].choices = _lifetimes()  # type: ignore[attr-defined]

    def arguments(self) -> dict[str, Any]:
        """Return what the service takes."""
        return {
            "name": self.cleaned_data["name"],
            "scopes": [self.cleaned_data["scope"]],
            "project": self.cleaned_data["project"],
            "expires_at": _end(self.cleaned_data["lifetime"]),
            "allowed_networks": self.cleaned_data["networks"],
        }


def token_facts(token: ApiToken) -> dict[str, Any]:
    """Return what the page shows of a key that people can change."""
    ends = token.expires_at.isoformat() if token.expires_at else ""
    return {"name": token.name, "networks": ", ".join(token.allowed_networks), "lifetime": "keep", "ends": ends}


class TokenChangeForm(EditForm):
    """A key that exists: its name, from where it may be used, and possibly another end."""

    name = forms.CharField(max_length=200, label=gettext_lazy("Name"))
    networks = _NetworksField()
    lifetime = forms.ChoiceField(required=False, label=gettext_lazy("Ends, from now on, after"))
    test_ids = {"name": "token-name", "networks": "token-networks", "lifetime": "token-lifetime"}

    def __init__(self, data: Any = None, *, token: ApiToken) -> None:
        super().__init__(data, now=token_facts(token))
        self.fields["lifetime"].choices = _lifetimes(("keep", gettext_lazy("As it is")))  # type: ignore[attr-defined]

    def changes(self) -> dict[str, Any]:
        """Return what the service takes."""
        found = {"name": self.cleaned_data["name"], "allowed_networks": self.cleaned_data["networks"]}
        if self.cleaned_data["lifetime"] != "keep":
            found["expires_at"] = _end(self.cleaned_data["lifetime"])
        return found


class TokenRotateForm(StyledForm):
    """How long the present secret works beside the new one."""

    overlap = forms.ChoiceField(
        choices=[
            ("0", gettext_lazy("Not at all")),
            ("1", gettext_lazy("1 hour")),
            ("24", gettext_lazy("1 day")),
            ("168", gettext_lazy("7 days")),
        ],
        initial="24",
        label=gettext_lazy("The present secret goes on for"),
        help_text=gettext_lazy("So long both work, so that whoever uses the key can change over."),
    )
    test_ids = {"overlap": "token-overlap"}

    def time(self) -> timedelta:
        """Return the time for which both work."""
        return timedelta(hours=int(self.cleaned_data["overlap"]))
