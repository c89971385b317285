"""Forms of the pages about CI without secrets."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.domain.ci_trust import MAX_AGE_MINUTES, MAX_LIFETIME_MINUTES
from registry.models import Issuer, IssuerKind, TrustRule, User

_MONO = {"spellcheck": "false", "class": "input mono"}


class IssuerForm(StyledForm):
    """An issuer for the site's list."""

    kind = forms.ChoiceField(choices=IssuerKind.choices, label=gettext_lazy("Kind"))
    slug = forms.SlugField(max_length=63, label=gettext_lazy("Short name"))
    url = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("Address"),
        help_text=gettext_lazy("Empty: github.com or gitlab.com. Else that of your own server, as in its tokens."),
        widget=forms.TextInput(attrs={**_MONO, "type": "url", "placeholder": "https://"}),
    )
    max_age_minutes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_AGE_MINUTES,
        label=gettext_lazy("Oldest token, in minutes"),
        help_text=gettext_lazy("Empty: 10 for GitHub, 60 for GitLab, which makes a token when the job begins."),
    )
    test_ids = {"slug": "issuer-slug", "kind": "issuer-kind", "url": "issuer-url"}


class _RuleFields(StyledForm):
    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    service_account = forms.ModelChoiceField(
        User.objects.none(),
        to_field_name="username",
        empty_label=None,
        label=gettext_lazy("Acts as"),
        help_text=gettext_lazy("A service account that is a member of this project: its role is what jobs may do."),
    )
    repository = forms.CharField(
        required=False,
        max_length=200,
        label=gettext_lazy("Repository"),
        help_text=gettext_lazy("What people call it; only shown."),
        widget=forms.TextInput(attrs={**_MONO, "placeholder": "owner/repo"}),
    )
    repository_id = forms.CharField(
        max_length=32,
        label=gettext_lazy("Repository number"),
        help_text=gettext_lazy("GitHub: id of GET /repos/OWNER/REPO. GitLab: the project ID on the project's page."),
        widget=forms.TextInput(attrs={**_MONO, "inputmode": "numeric"}),
    )
    owner_id = forms.CharField(
        max_length=32,
        label=gettext_lazy("Owner number"),
        help_text=gettext_lazy("GitHub: owner.id of the same answer. GitLab: the ID of the group or user."),
        widget=forms.TextInput(attrs={**_MONO, "inputmode": "numeric"}),
    )
    protected_ref = forms.BooleanField(
        required=False,
        label=gettext_lazy("Only from protected branches and tags"),
        help_text=gettext_lazy("Without it an environment must be named, and the issuer must guard that."),
    )
    environment = forms.CharField(
        required=False,
        max_length=255,
        label=gettext_lazy("Environment"),
        help_text=gettext_lazy("The name of the job's environment there. Empty: any, also none."),
    )
    ref = forms.CharField(
        required=False,
        max_length=255,
        label=gettext_lazy("Ref"),
        help_text=gettext_lazy("Exactly this one, for example refs/heads/main. Empty: any that is protected."),
        widget=forms.TextInput(attrs=_MONO),
    )
    workflow = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("Workflow"),
        help_text=gettext_lazy("Exactly this file and ref: workflow_ref at GitHub, ci_config_ref_uri at GitLab."),
        widget=forms.TextInput(attrs=_MONO),
    )
    events = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("Started by"),
        help_text=gettext_lazy("With commas. Empty: what runs code of the repository itself, and no pull requests."),
        widget=forms.TextInput(attrs=_MONO),
    )
    scope = forms.ChoiceField(
        choices=[("read", gettext_lazy("Read")), ("write", gettext_lazy("Read and write"))],
        initial="write",
        label=gettext_lazy("Scope"),
    )
    lifetime_minutes = forms.IntegerField(
        min_value=1, max_value=MAX_LIFETIME_MINUTES, initial=15, label=gettext_lazy("The token ends after, in minutes")
    )
    test_ids = {
        "name": "rule-name",
        "service_account": "rule-account",
        "repository_id": "rule-repository-id",
        "owner_id": "rule-owner-id",
        "environment": "rule-environment",
        "protected_ref": "rule-protected",
    }

    def arguments(self) -> dict[str, Any]:
        """Return what the service takes."""
        given = {name: value for name, value in self.cleaned_data.items() if name not in ("scope", "seen")}
        given["scopes"] = [self.cleaned_data["scope"]]
        given["events"] = self.cleaned_data["events"].replace(",", " ").split()
        return given


class TrustRuleForm(_RuleFields):
    """A new rule."""

    issuer = forms.ModelChoiceField(
        Issuer.objects.none(), to_field_name="slug", empty_label=None, label=gettext_lazy("Issuer")
    )
    field_order = ("name", "issuer", "service_account")

    def __init__(self, data: Any = None, *, issuers: Any, accounts: Any) -> None:
        super().__init__(data, initial={"protected_ref": True})
        self.fields["issuer"].queryset = issuers  # type: ignore[attr-defined]
        self.fields["service_account"].queryset = accounts  # type: ignore[attr-defined]
        self.fields["issuer"].widget.attrs["data-testid"] = "rule-issuer"


def rule_facts(rule: TrustRule) -> dict[str, Any]:
    """Return what the page shows of a rule that people can change."""
    names = ("name", "repository", "repository_id", "owner_id", "protected_ref", "environment", "ref", "workflow")
    return {
        **{name: getattr(rule, name) for name in names},
        "service_account": rule.service_account.username,
        "events": ", ".join(rule.events),
        "scope": "write" if "write" in rule.scopes else "read",
        "lifetime_minutes": rule.lifetime_minutes,
        "is_enabled": rule.is_enabled,
    }


class TrustRuleChangeForm(_RuleFields, EditForm):
    """A rule that exists."""

    is_enabled = forms.BooleanField(required=False, label=gettext_lazy("In force"))

    def __init__(self, data: Any = None, *, rule: TrustRule, accounts: Any) -> None:
        super().__init__(data, now=rule_facts(rule))
        self.fields["service_account"].queryset = accounts  # type: ignore[attr-defined]
