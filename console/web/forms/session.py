"""Signing in, and one's own password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm


class SignInForm(AuthenticationForm):
    """Name and password, with the console's look."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, test_id in (("username", "login-username"), ("password", "login-password")):
            self.fields[name].widget.attrs.update({"class": "input", "data-testid": test_id})


class PasswordForm(PasswordChangeForm):
    """Old and new password, with the console's look."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = "input"
