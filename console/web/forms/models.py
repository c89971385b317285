"""Forms of models."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from console.web.forms.styling import StyledForm


class ModelForm(StyledForm):
    """A new model."""

    slug = forms.RegexField(
        r"^[A-Za-z0-9_-]+$",
        max_length=128,
        label=_("Name"),
        help_text=_("Letters, digits, - and _. Clients use it in the address of every request."),
        error_messages={"invalid": _("Use letters, digits, - and _ only.")},
    )
    description = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 3}), label=_("Description"), max_length=2000
    )
    test_ids = {"slug": "model-name", "description": "model-description"}
