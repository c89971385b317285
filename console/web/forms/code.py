"""The form that withdraws the permission for code."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.services.code import MAX_REASON


class WithdrawForm(StyledForm):
    """Why the permission is withdrawn."""

    reason = forms.CharField(
        max_length=MAX_REASON,
        label=gettext_lazy("Reason"),
        help_text=gettext_lazy(
            "It is shown on the version's page, to whoever tries to deploy it, and in the audit log."
        ),
        widget=forms.Textarea(attrs={"rows": 2, "class": "textarea"}),
    )
    test_ids = {"reason": "code-reason"}
