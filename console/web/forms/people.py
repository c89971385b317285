"""Forms of the pages about accounts."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from console.web.forms.styling import StyledForm
from registry.models import SiteRole, User


class PersonForm(StyledForm):
    """What an administrator changes of an account."""

    username = forms.CharField(max_length=150, label=_("User name"))
    first_name = forms.CharField(max_length=150, required=False, label=_("First name"))
    last_name = forms.CharField(max_length=150, required=False, label=_("Last name"))
    email = forms.EmailField(required=False, label=_("E-mail"), help_text=_("Where a link for a new password goes."))
    site_role = forms.ChoiceField(
        choices=SiteRole.choices, label=_("Site role"), help_text=_("Rights on environments, fleets and nodes.")
    )
    test_ids = {"username": "person-username", "email": "person-email", "site_role": "person-site-role"}

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        names = ("username", "first_name", "last_name", "email", "site_role")
        super().__init__(*args, initial={name: getattr(user, name) for name in names}, **kwargs)
