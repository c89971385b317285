"""Forms of models."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from console.web.forms.styling import StyledForm
from registry.domain.cards import MAX_CARD_BYTES
from registry.domain.sample_inputs import MAX_DOCUMENT_BYTES
from registry.models import RegisteredModel


class ModelForm(StyledForm):
    """A new model."""

    slug = forms.RegexField(
        r"^[A-Za-z0-9_-]+$",
        max_length=128,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("Letters, digits, - and _. Clients use it in the address of every request."),
        error_messages={"invalid": gettext_lazy("Use letters, digits, - and _ only.")},
    )
    description = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        label=gettext_lazy("Description"),
        max_length=2000,
    )
    task = forms.CharField(
        required=False,
        max_length=64,
        label=gettext_lazy("Task"),
        help_text=gettext_lazy("What it does, for example text-classification; a name of your own will do."),
        widget=forms.TextInput(attrs={"list": "tasks", "spellcheck": "false", "autocomplete": "off"}),
    )
    test_ids = {"slug": "model-name", "description": "model-description", "task": "model-task"}


def model_facts(model: RegisteredModel) -> dict[str, Any]:
    """Return what is said about a model, as the form's values."""
    return {
        "description": model.description,
        "task": model.task,
        "tags": "\n".join(f"{name}={value}" if value else name for name, value in sorted(model.tags.items())),
        "links": "\n".join(f"{link['label']} {link['url']}" for link in model.links),
        "owner": model.owner.username,
    }


class ModelEditForm(EditForm):
    """What is said about a model that exists."""

    description = ModelForm.base_fields["description"]
    task = ModelForm.base_fields["task"]
    tags = forms.CharField(
        required=False,
        max_length=10_000,
        label=gettext_lazy("Tags"),
        help_text=gettext_lazy("One a line: name or name=value."),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "textarea mono"}),
    )
    links = forms.CharField(
        required=False,
        max_length=50_000,
        label=gettext_lazy("Links"),
        help_text=gettext_lazy("One a line: words, then an https address."),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )
    owner = forms.ChoiceField(label=gettext_lazy("Owner"))
    test_ids = {"description": "model-description", "task": "model-task", "tags": "model-tags", "links": "model-links",
                "owner": "model-owner"}  # fmt: skip

    def __init__(self, data: Any = None, *, model: RegisteredModel, owners: list[str]) -> None:
        super().__init__(data, now=model_facts(model))
        names = sorted({*owners, model.owner.username})
        self.fields["owner"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]

    def clean_tags(self) -> dict[str, str]:
        lines = [line.strip() for line in self.cleaned_data["tags"].splitlines() if line.strip()]
        pairs = [line.partition("=") for line in lines]
        return {name.strip(): value.strip() for name, _equals, value in pairs}

    def clean_links(self) -> list[dict[str, str]]:
        links = []
        for line in self.cleaned_data["links"].splitlines():
            if not line.strip():
                continue
            label, _space, url = line.strip().rpartition(" ")
            if not label:
                raise forms.ValidationError(_("A line has words and then an address: %(line)s") % {"line": line[:80]})
            links.append({"label": label.strip(), "url": url})
        return links


class CardForm(StyledForm):
    """A model's card. ``seen`` is the number of the revision that was edited, 0 for none."""

    text = forms.CharField(
        strip=False,
        max_length=MAX_CARD_BYTES,
        label=gettext_lazy("Markdown"),
        help_text=gettext_lazy(
            "CommonMark with tables. HTML is shown as text; pictures of other hosts become links, those in the text "
            "(data:) are shown."
        ),
        widget=forms.Textarea(attrs={"rows": 22, "class": "textarea mono", "data-testid": "card-text"}),
    )
    comment = forms.CharField(required=False, max_length=500, label=gettext_lazy("What changed"))
    seen = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)


class SamplesForm(StyledForm):
    """Sample inputs as JSON; ``text`` is cleaned to a list. ``seen`` is the digest of what was edited."""

    text = forms.CharField(
        strip=False,
        required=False,
        max_length=MAX_DOCUMENT_BYTES,
        label=gettext_lazy("Samples as JSON"),
        help_text=gettext_lazy("A list of inference requests, each with a name and the outputs that are expected."),
        widget=forms.Textarea(attrs={"rows": 22, "class": "textarea mono", "data-testid": "samples-text"}),
    )
    seen = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def clean_text(self) -> list[Any]:
        """Return the samples, of which the service says whether they are any."""
        try:
            read = json.loads(self.cleaned_data["text"] or "[]")
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(_("This is no JSON: %(why)s") % {"why": error}) from error
        return read if isinstance(read, list) else [read]
