"""Widgets with the classes of the style sheet, and the attributes that screen readers need."""

from __future__ import annotations

from typing import Any

from django import forms

_CLASSES: tuple[tuple[type[forms.Widget], str], ...] = (
    (forms.CheckboxInput, "checkbox checkbox-sm"),
    (forms.CheckboxSelectMultiple, ""),
    (forms.RadioSelect, ""),
    (forms.Select, "select"),
    (forms.Textarea, "textarea"),
    (forms.Widget, "input"),
)


class StyledForm(forms.Form):
    """A form whose widgets look like the console's. Field errors are tied to their input by ``aria-describedby``.

    ``test_ids`` maps field names to data-testid.
    """

    required_css_class = "required"
    test_ids: dict[str, str] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            css = next(css for kind, css in _CLASSES if isinstance(field.widget, kind))
            if css:
                field.widget.attrs.setdefault("class", css)
            if name in self.test_ids:
                field.widget.attrs["data-testid"] = self.test_ids[name]
