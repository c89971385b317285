"""Forms about something that exists: of two people who edit it at once, neither overwrites the other unseen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.encoding import force_str
from django.utils.translation import gettext as _

from console.web.forms.styling import StyledForm


def seen_text(facts: Mapping[str, Any]) -> str:
    """Return what a page shows of something, as the text that its form carries along in the field ``seen``."""
    return json.dumps(dict(facts), sort_keys=True, default=str)


class EditForm(StyledForm):
    """A form that carries what the person saw. ``now``: the values of its fields as they are.

    A view saves inside ``registry.services.locking.held`` when ``is_current`` says so; else it shows the form again.
    """

    seen = forms.CharField(required=False, max_length=100_000, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, now: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(data, initial={**now, "seen": seen_text(now)}, **kwargs)

    def is_current(self, now: Mapping[str, Any]) -> bool:
        """Return whether nobody changed it meanwhile.

        If somebody did: what was typed stays, each field that they changed shows their value, and saving once more
        replaces it.
        """
        given = str(self.cleaned_data.pop("seen", ""))
        if given == seen_text(now):
            return True
        self.add_error(None, _("Somebody changed it while you were editing. Compare, then save again to replace it."))
        before = _read(given)
        for name, value in now.items():
            if name in self.fields and before.get(name) != json.loads(json.dumps(value, default=str)):
                self.add_error(name, _("Now it says: %(value)s") % {"value": self._shown(name, value)})
        data: Any = self.data
        again = data.copy()
        again[self.add_prefix("seen")] = seen_text(now)
        self.data = again
        return False

    def _shown(self, name: str, value: Any) -> str:
        if isinstance(value, bool):
            return _("yes") if value else _("no")
        labels = {str(key): label for key, label in getattr(self.fields[name], "choices", [])}
        return force_str(labels.get(str(value), value)) or _("nothing")


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
