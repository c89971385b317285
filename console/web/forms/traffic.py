"""The traffic split of a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from console.web.forms.styling import StyledForm
from registry.models import Route


class TrafficForm(StyledForm):
    """One weight for each unit that takes traffic. With exactly two, one slider moves both.

    Field names are ``weight-<number>`` in the order of ``routes``; the live ones come first.
    """

    def __init__(self, routes: Iterable[Route], data: Mapping[str, Any] | None = None) -> None:
        takers = [route for route in routes if route.role in {"live", "canary"}]
        self.routes = sorted(takers, key=lambda route: (route.role != "live", route.version.number or 0))
        super().__init__(data)
        for number, route in enumerate(self.routes):
            self.fields[self.name_of(number)] = forms.IntegerField(
                min_value=0, max_value=100, initial=route.weight, label=f"v{route.version.number}"
            )

    @staticmethod
    def name_of(number: int) -> str:
        """Return the field's name."""
        return f"weight-{number}"

    @property
    def is_pair(self) -> bool:
        """Whether one slider is enough."""
        return len(self.routes) == 2

    @property
    def rows(self) -> list[tuple[Route, forms.BoundField]]:
        """Routes with their fields."""
        return [(route, self[self.name_of(number)]) for number, route in enumerate(self.routes)]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and sum(cleaned.values()) != 100:
            raise forms.ValidationError(
                _("The shares must sum to 100; they sum to %(sum)d.") % {"sum": sum(cleaned.values())}
            )
        return cleaned

    def weights(self) -> dict[str | int, int]:
        """Return what was asked for, by unit."""
        return {route.unit: self.cleaned_data[self.name_of(number)] for number, route in enumerate(self.routes)}

    def by_version(self) -> dict[int, int]:
        """Return what was asked for, by version number."""
        return {
            route.version.number or 0: self.cleaned_data[self.name_of(number)]
            for number, route in enumerate(self.routes)
        }

    def present(self) -> dict[str, int]:
        """Return the weights as they are, by unit."""
        return {route.unit: route.weight for route in self.routes}

    def problems(self) -> list[str]:
        """Return every error as a sentence."""
        return [str(message) for messages in self.errors.values() for message in messages]
