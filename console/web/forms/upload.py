"""The form that starts an upload."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from console.web.forms.styling import StyledForm
from registry.domain.import_sources import MAX_ADDRESS, source_problem


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


class AddressForm(UploadForm):
    """The same, for files that the server fetches from an address itself."""

    address = forms.CharField(
        max_length=MAX_ADDRESS,
        label=_("Address"),
        help_text=_("One file of a web server, or everything below a prefix of a store."),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "class": "input mono", "inputmode": "url"}
        ),
    )
    test_ids = {"model": "fetch-model", "git_sha": "fetch-commit", "address": "fetch-address"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Two forms of one page have fields of the same name.
        super().__init__(*args, auto_id="id_fetch_%s", **kwargs)

    def clean_address(self) -> str:
        """Refuse what the operator does not allow before a version is made for it."""
        address: str = self.cleaned_data["address"].strip()
        if problem := source_problem(address, settings.IMPORT_SOURCES):
            raise forms.ValidationError(problem)
        return address
