"""Forms of the page about signatures over versions."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.models import SigningPolicy
from registry.services.signing import MAX_PEM_CHARACTERS
from registry.services.signing_identities import MAX_CERTIFICATES_CHARACTERS, MAX_IDENTITY


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


class CertificateIdentityForm(StyledForm):
    """An identity that authorities of one's own vouch for."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    identity = forms.CharField(
        max_length=MAX_IDENTITY,
        label=gettext_lazy("Whom the certificate names"),
        help_text=gettext_lazy(
            "Its subject (CN=release,O=Corp) or another name of it; spiffe://corp/ci/* for all below, * for all."
        ),
    )
    certificates = forms.CharField(
        max_length=MAX_CERTIFICATES_CHARACTERS,
        label=gettext_lazy("Certificates of authorities"),
        help_text=gettext_lazy("PEM; lists of revoked certificates (X509 CRL) may stand among them."),
        widget=forms.Textarea(
            attrs={"rows": 5, "spellcheck": "false", "class": "textarea mono", "placeholder": "-----BEGIN CERTIFICATE"}
        ),
    )
    prefix = "certificate"
    test_ids = {
        "name": "signing-certificate-name",
        "identity": "signing-certificate-identity",
        "certificates": "signing-certificate-pem",
    }


class KeylessIdentityForm(StyledForm):
    """An identity that an OpenID Connect issuer vouches for, by Sigstore."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    identity = forms.CharField(
        max_length=MAX_IDENTITY,
        label=gettext_lazy("Whom the certificate names"),
        help_text=gettext_lazy("An e-mail address, or a workflow: https://.../release.yml@refs/tags/*"),
    )
    issuer = forms.CharField(
        max_length=MAX_IDENTITY,
        label=gettext_lazy("Issuer"),
        help_text=gettext_lazy("https://token.actions.githubusercontent.com for GitHub Actions."),
    )
    prefix = "keyless"
    test_ids = {
        "name": "signing-keyless-name",
        "identity": "signing-keyless-identity",
        "issuer": "signing-keyless-issuer",
    }
