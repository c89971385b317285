"""Forms of the pages about webhooks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.domain.addresses import MAX_URL
from registry.models import Webhook, WebhookFormat


def webhook_facts(webhook: Webhook) -> dict[str, Any]:
    """Return what its page shows of a webhook, as the form's values. ``origin`` stands for the address."""
    return {
        "name": webhook.name,
        "events": ", ".join(webhook.events),
        "format": webhook.format,
        "url": "",
        "origin": webhook.origin,
        "is_enabled": webhook.is_enabled,
    }


class WebhookForm(StyledForm):
    """What a webhook hears of and how. Of one that exists the address is only given to change it."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    url = forms.CharField(
        max_length=MAX_URL,
        label=gettext_lazy("Address"),
        help_text=gettext_lazy("Kept sealed: nobody can read it here again."),
        widget=forms.TextInput(
            attrs={"type": "url", "placeholder": "https://", "autocomplete": "off", "spellcheck": "false"}
        ),
    )
    events = forms.CharField(
        max_length=2000,
        initial="*",
        label=gettext_lazy("Events"),
        help_text=gettext_lazy("Names like version.ready or groups like approval.*, with commas; * is all of them."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "class": "input mono"}),
    )
    format = forms.ChoiceField(
        choices=WebhookFormat.choices, initial=WebhookFormat.STANDARD, label=gettext_lazy("What is sent")
    )
    test_ids = {"name": "webhook-name", "url": "webhook-url", "events": "webhook-events", "format": "webhook-format"}

    def clean_events(self) -> list[str]:
        return [word.strip() for word in self.cleaned_data["events"].split(",") if word.strip()]


class NewWebhookForm(WebhookForm):
    """A new webhook, of the current project or of the site."""

    of_site = forms.BooleanField(
        required=False,
        label=gettext_lazy("Of the whole site"),
        help_text=gettext_lazy("It hears of nodes, fleets, environments and accounts instead of the project."),
    )


class WebhookChangeForm(EditForm, WebhookForm):
    """A webhook that exists; an empty address leaves it as it is."""

    def __init__(self, data: Any = None, *, webhook: Webhook) -> None:
        super().__init__(data, now=webhook_facts(webhook))
        self.fields["url"].required = False
        self.fields["url"].help_text = gettext_lazy("Empty: it stays as it is.")

    def changes(self) -> dict[str, Any]:
        """Return what the service takes."""
        return {**self.cleaned_data, "url": self.cleaned_data["url"] or None}
