"""Sample inputs as they are stored."""

from __future__ import annotations

from registry.models import ModelVersion, RegisteredModel, SampleSet


def sample_set(model: RegisteredModel, version: ModelVersion | None = None) -> SampleSet | None:
    """Return the samples of a version, or without one those of all versions of a model; None while there are none."""
    found = SampleSet.objects.filter(model=model, version=version)
    return found.select_related("model", "version", "author").first()
