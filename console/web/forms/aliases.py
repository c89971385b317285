"""The form that points an alias at a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.domain.aliases import MAX_ALIAS
from registry.models import ModelVersion


class AliasForm(StyledForm):
    """A name, the ready version it shall point at, and whether moving it needs an approver.

    ``seen`` is the id of the version that it pointed at when the page was made; empty: there was no such alias.
    """

    name = forms.CharField(
        max_length=MAX_ALIAS,
        initial="champion",
        label=gettext_lazy("Alias"),
        help_text=gettext_lazy("Lower-case letters, digits, - and _. A name that exists is moved."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "class": "input mono"}),
    )
    version = forms.TypedChoiceField(coerce=int, label=gettext_lazy("Version"))
    is_protected = forms.BooleanField(
        required=False,
        label=gettext_lazy("Protected"),
        help_text=gettext_lazy("Only approvers and those above them move it, delete it or free it."),
    )
    comment = forms.CharField(
        required=False, max_length=500, label=gettext_lazy("Why"), help_text=gettext_lazy("The history shows it.")
    )
    seen = forms.UUIDField(required=False, widget=forms.HiddenInput)
    was_protected = forms.BooleanField(required=False, widget=forms.HiddenInput)
    test_ids = {"name": "alias-name", "version": "alias-version", "is_protected": "alias-protected"}

    def __init__(
        self, data: Any = None, *, versions: Sequence[ModelVersion], initial: dict[str, Any] | None = None
    ) -> None:
        super().__init__(data, initial=initial)
        choices = [(one.number, f"v{one.number} · {one.format}") for one in versions]
        self.fields["version"].choices = choices  # type: ignore[attr-defined]
