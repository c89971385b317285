"""Forms of the pages about single sign-on and provisioning."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from console.web.forms.styling import StyledForm
from registry.models import Project, Role, SignUp, SsoProvider
from registry.services.sso import SUBJECT_CLAIMS


class ProviderForm(StyledForm):
    """What can be changed of a provider."""

    name = forms.CharField(max_length=100, label=_("Name"), help_text=_("What the sign-in page calls it."))
    client_id = forms.CharField(max_length=200, label=_("Client ID"))
    client_secret = forms.CharField(
        max_length=1000,
        label=_("Client secret"),
        help_text=_("Kept sealed: nobody can read it here again."),
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    scopes = forms.CharField(max_length=200, initial="openid profile email", label=_("Scopes"))
    groups_claim = forms.CharField(
        max_length=100,
        required=False,
        initial="groups",
        label=_("Groups claim"),
        help_text=_("In which claim the provider lists a person's groups."),
    )
    sign_up = forms.ChoiceField(
        choices=SignUp.choices, initial=SignUp.OFF, label=_("Who gets an account by signing in there")
    )
    test_ids = {"name": "sso-name", "client_id": "sso-client-id", "client_secret": "sso-secret"}


class NewProviderForm(ProviderForm):
    """A new provider."""

    slug = forms.SlugField(
        max_length=63, label=_("Short name"), help_text=_("Part of the redirect address; it stays as it is.")
    )
    issuer = forms.CharField(
        max_length=500,
        label=_("Issuer"),
        help_text=_("As the provider writes it, with https://. It stays as it is."),
        widget=forms.TextInput(attrs={"type": "url", "placeholder": "https://", "spellcheck": "false"}),
    )
    subject_claim = forms.ChoiceField(
        choices=[(one, one) for one in SUBJECT_CLAIMS],
        initial="sub",
        label=_("Subject claim"),
        help_text=_("What names a person there for good: “oid” for Microsoft Entra with SCIM, else “sub”."),
    )
    field_order = ["slug", "name", "issuer", "subject_claim"]
    test_ids = {**ProviderForm.test_ids, "slug": "sso-slug", "issuer": "sso-issuer"}


class ProviderChangeForm(ProviderForm):
    """A provider that exists; an empty secret leaves it as it is."""

    def __init__(self, *args: Any, provider: SsoProvider, **kwargs: Any) -> None:
        names = ("name", "client_id", "scopes", "groups_claim", "sign_up")
        super().__init__(*args, initial={name: getattr(provider, name) for name in names}, **kwargs)
        self.fields["client_secret"].required = False
        self.fields["client_secret"].help_text = _("Empty: it stays as it is.")

    def changes(self) -> dict[str, Any]:
        """Return what the service takes."""
        return {**self.cleaned_data, "client_secret": self.cleaned_data["client_secret"] or None}


class MappingForm(StyledForm):
    """A group and the role that it gives."""

    group = forms.CharField(max_length=200, label=_("Group"), help_text=_("As the claim has it: a name or an id."))
    project = forms.ModelChoiceField(
        Project.objects.none(), required=False, to_field_name="slug", label=_("Project"), empty_label=_("The site")
    )
    role = forms.ChoiceField(
        choices=Role.choices, label=_("Role"), help_text=_("On the site there are Operator and Administrator.")
    )
    test_ids = {"group": "mapping-group", "project": "mapping-project", "role": "mapping-role"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["project"].queryset = Project.objects.order_by("slug")  # type: ignore[attr-defined]


class ScimTokenForm(StyledForm):
    """A new token for provisioning."""

    name = forms.CharField(max_length=100, label=_("Name"), help_text=_("Which system uses it."))
    provider = forms.ModelChoiceField(
        SsoProvider.objects.none(),
        required=False,
        to_field_name="slug",
        label=_("Single sign-on"),
        empty_label=_("None"),
        help_text=_("Accounts that it makes sign in with this provider; their external id is the subject there."),
    )
    test_ids = {"name": "scim-name", "provider": "scim-provider"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["provider"].queryset = SsoProvider.objects.order_by("slug")  # type: ignore[attr-defined]
