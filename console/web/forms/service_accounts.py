"""Forms of the pages about service accounts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.models import Project, Role, SiteRole


class ServiceAccountForm(StyledForm):
    """A new service account."""

    username = forms.CharField(
        max_length=150,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("What works under it, for example ci-sentiment."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    site_role = forms.ChoiceField(
        choices=SiteRole.choices,
        initial=SiteRole.NONE,
        label=gettext_lazy("Site role"),
        help_text=gettext_lazy("Rights on environments, fleets and nodes, outside projects."),
    )
    test_ids = {"username": "account-username", "site_role": "account-site-role"}


class AccountRoleForm(StyledForm):
    """A role in a project."""

    project = forms.ModelChoiceField(
        Project.objects.none(), to_field_name="slug", label=gettext_lazy("Project"), empty_label=None
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.PUBLISHER, label=gettext_lazy("Role"))
    test_ids = {"project": "account-project", "role": "account-role"}

    def __init__(self, *args: Any, projects: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project"].queryset = projects  # type: ignore[attr-defined]
