"""The form that starts an upload."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from console.web.forms.styling import StyledForm


class UploadForm(StyledForm):
    """Which model the files become a version of, and where they come from."""

    model = forms.RegexField(
        r"^[A-Za-z0-9_-]+$",
        max_length=128,
        label=_("Model"),
        help_text=_("An existing name adds a version to it; a new name makes the model."),
        error_messages={"invalid": _("Use letters, digits, - and _ only.")},
        widget=forms.TextInput(attrs={"list": "model-names", "autocomplete": "off", "spellcheck": "false"}),
    )
    git_sha = forms.RegexField(
        r"^[0-9a-fA-F]{7,64}$",
        required=False,
        label=_("Source commit"),
        help_text=_("The commit this model was trained from; approvers see it."),
        error_messages={"invalid": _("A commit is 7 to 64 hexadecimal digits.")},
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "input mono"}),
    )
    test_ids = {"model": "upload-model", "git_sha": "upload-commit"}
