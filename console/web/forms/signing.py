"""Forms of the page about signatures over versions."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.models import SigningPolicy
from registry.services.signing import MAX_PEM_CHARACTERS


class SigningPolicyForm(EditForm):
    """What the project asks of new versions."""

    signing_policy = forms.ChoiceField(choices=SigningPolicy.choices, label=gettext_lazy("Signatures of new versions"))
    test_ids = {"signing_policy": "signing-policy"}


class SigningKeyForm(StyledForm):
    """A key to trust."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    public_key = forms.CharField(
        max_length=MAX_PEM_CHARACTERS,
        label=gettext_lazy("Public key"),
        help_text=gettext_lazy("PEM of an elliptic curve key: P-256, P-384 or P-521."),
        widget=forms.Textarea(
            attrs={"rows": 5, "spellcheck": "false", "class": "textarea mono", "placeholder": "-----BEGIN PUBLIC KEY"}
        ),
    )
    test_ids = {"name": "signing-key-name", "public_key": "signing-key-pem"}
