"""Forms of the settings pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.models import User
from registry.models.accounts import Role, SiteRole


class MemberForm(StyledForm):
    """An existing account that gets a role in the project."""

    user = forms.ModelChoiceField(User.objects.none(), label=gettext_lazy("Account"), to_field_name="username")
    role = forms.ChoiceField(choices=Role.choices, initial=Role.PUBLISHER, label=gettext_lazy("Role"))
    test_ids = {"user": "member-user", "role": "member-role"}

    def __init__(self, *args: Any, users: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["user"].queryset = users  # type: ignore[attr-defined]


class NewMemberForm(StyledForm):
    """A new account with a role in the project."""

    username = forms.CharField(
        max_length=150, label=gettext_lazy("User name"), widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    password = forms.CharField(
        required=False,
        strip=False,
        label=gettext_lazy("First password"),
        help_text=gettext_lazy("At least 12 characters. They can change it under their name."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=True),
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.PUBLISHER, label=gettext_lazy("Role"))
    site_role = forms.ChoiceField(
        choices=SiteRole.choices,
        initial=SiteRole.NONE,
        label=gettext_lazy("Site role"),
        help_text=gettext_lazy("Rights on environments, fleets and nodes, outside projects."),
    )
    is_service = forms.BooleanField(
        required=False,
        label=gettext_lazy("Service account"),
        help_text=gettext_lazy("For machines: it works with API keys, cannot sign in and never approves."),
    )
    test_ids = {
        "username": "member-username",
        "password": "member-password",
        "role": "member-new-role",
        "site_role": "member-site-role",
    }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not cleaned.get("is_service") and not cleaned.get("password") and "password" not in self.errors:
            self.add_error("password", _("A person needs a first password."))
        return cleaned


class NewEnvironmentForm(StyledForm):
    """A new environment with its fleet."""

    slug = forms.SlugField(max_length=63, label=gettext_lazy("Short name"))
    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    requires_approval = forms.BooleanField(required=False, label=gettext_lazy("Changes need approval"))
    required_approvals = forms.IntegerField(
        min_value=1, max_value=10, initial=1, label=gettext_lazy("Approvals needed")
    )


class ProjectForm(StyledForm):
    """A new project."""

    slug = forms.SlugField(
        max_length=63,
        label=gettext_lazy("Short name"),
        help_text=gettext_lazy("Part of addresses; it does not change."),
    )
    name = forms.CharField(max_length=200, label=gettext_lazy("Name"))
    test_ids = {"slug": "project-slug", "name": "project-name"}


class JoinForm(StyledForm):
    """Labels that a joining node gets."""

    labels = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("Labels"),
        help_text=gettext_lazy("As key=value, separated by commas. Fleets choose nodes by them."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "class": "input mono"}),
    )
    test_ids = {"labels": "join-labels"}

    def clean_labels(self) -> dict[str, str]:
        labels = {}
        for part in _words(self.cleaned_data["labels"]):
            key, equals, value = part.partition("=")
            if not equals or not key.strip() or not value.strip():
                raise forms.ValidationError(_("“%(part)s” is not key=value.") % {"part": part})
            labels[key.strip()] = value.strip()
        return labels


def _words(text: str) -> Iterable[str]:
    return (part.strip() for part in text.split(",") if part.strip())
