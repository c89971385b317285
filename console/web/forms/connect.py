"""The form of the page that lets a command line act for a person."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm


class CodeForm(StyledForm):
    """The code that the command line shows."""

    code = forms.CharField(
        max_length=32,
        label=gettext_lazy("Code"),
        help_text=gettext_lazy("Eight letters that flotilla login printed, such as WDJB-MJHT."),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "characters", "class": "input mono"}
        ),
    )
    test_ids = {"code": "connect-code"}
