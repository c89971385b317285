"""Signing in, confirming who one is, and one's own password."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import LoginForm, ReauthenticateForm, ResetPasswordForm, ResetPasswordKeyForm
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as ReauthenticateByCodeForm
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn.forms import AddWebAuthnForm
from django import forms
from django.contrib.auth.forms import PasswordChangeForm
from django.utils.translation import gettext_lazy as _


def _styled(form: forms.BaseForm, **test_ids: str) -> None:
    """Give the fields the console's look; labels say what placeholders and links would."""
    for name, field in form.fields.items():
        if isinstance(field.widget, forms.CheckboxInput):
            field.widget.attrs["class"] = "checkbox checkbox-sm"
        elif not field.widget.is_hidden:
            field.widget.attrs["class"] = "input"
            field.widget.attrs.pop("placeholder", None)
        if name in test_ids:
            field.widget.attrs["data-testid"] = test_ids[name]


class SignInForm(LoginForm):  # type: ignore[misc]
    """Name and password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].label = _("User name")
        self.fields["password"].help_text = ""
        self.fields["login"].widget.attrs.update({"autocapitalize": "none", "autofocus": True})
        _styled(self, login="login-username", password="login-password")  # noqa: S106


class ConfirmForm(ReauthenticateForm):  # type: ignore[misc]
    """The password again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].help_text = ""
        _styled(self, password="confirm-password")  # noqa: S106


class CodeForm(AuthenticateForm):  # type: ignore[misc]
    """A code of an authenticator app, or a recovery code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = _("Code")
        self.fields["code"].help_text = _("Of your authenticator app, or one of your recovery codes.")
        _styled(self, code="factor-code")


class ConfirmByCodeForm(ReauthenticateByCodeForm):  # type: ignore[misc]
    """The same, to confirm who one is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = _("Code")
        _styled(self, code="confirm-code")


class ForgotForm(ResetPasswordForm):  # type: ignore[misc]
    """Where the link for a new password goes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _styled(self, email="forgot-email")


class NewPasswordForm(ResetPasswordKeyForm):  # type: ignore[misc]
    """A new password, twice."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password1"].help_text = _("At least 12 characters, not a common password, not like your name.")
        _styled(self, password1="new-password", password2="new-password-again")


class AppForm(ActivateTOTPForm):  # type: ignore[misc]
    """The first code of an authenticator app."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _styled(self, code="app-code")


class PasskeyForm(AddWebAuthnForm):  # type: ignore[misc]
    """A new passkey and its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].label = _("Name")
        self.fields["name"].widget.attrs["maxlength"] = 100
        self.fields["passwordless"].label = _("Sign in with it alone")
        self.fields["passwordless"].help_text = _("The device then asks for its PIN, a fingerprint or a face.")
        _styled(self, name="passkey-name", passwordless="passkey-alone")

    def clean_name(self) -> str:
        """Return the name, cut to what lists show."""
        return str(super().clean_name())[:100]


class PasswordForm(PasswordChangeForm):
    """Old and new password, with the console's look."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _styled(self)
