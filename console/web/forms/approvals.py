"""The decision about a request."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.forms.styling import StyledForm
from registry.models.deployments import ReviewDecision


class ReviewForm(StyledForm):
    """Bound to the digest of the plan that was read: a plan that changed meanwhile is not decided on by accident."""

    decision = forms.ChoiceField(choices=ReviewDecision.choices)
    comment = forms.CharField(
        required=False,
        max_length=2000,
        label=gettext_lazy("Comment"),
        widget=forms.Textarea(attrs={"rows": 1, "placeholder": gettext_lazy("Comment")}),
    )
    plan_digest = forms.CharField(max_length=64, widget=forms.HiddenInput)
    test_ids = {"comment": "review-comment"}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("decision") in {"reject", "request_changes", "comment"} and not cleaned.get("comment"):
            self.add_error("comment", _("Say why, so that the author can act on it."))
        return cleaned
