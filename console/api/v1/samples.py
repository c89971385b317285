"""Sample inputs: what versions are tried with, and the answers that are expected."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.v1.versions import VersionView
from console.api.views import ApiView
from registry.domain.sample_inputs import MAX_SAMPLES
from registry.models import ModelVersion, RegisteredModel, SampleSet
from registry.selectors.sample_sets import sample_set
from registry.services.sample_sets import samples_save


class SampleSetSerializer(serializers.Serializer[Any]):
    """Samples, and who stored them; an empty list while there are none."""

    samples = serializers.ListField(child=serializers.DictField())
    sha256 = serializers.CharField(allow_blank=True)
    updated_by = serializers.CharField(allow_null=True)
    updated_at = serializers.DateTimeField(allow_null=True)


class SampleSetWrite(serializers.Serializer[Any]):
    """All samples: requests of the open inference protocol with ``name``, ``expected`` and ``tolerance`` beside."""

    samples = serializers.ListField(child=serializers.DictField(), max_length=MAX_SAMPLES)


_READ = "Inference requests that smoke inference sends, and what it compares the answers with."
_WRITE = "Replaces all of them; an empty list takes them away. Checks that were made stay until they are made again."


class ModelSamples(ApiView):
    """The samples of all versions of a model."""

    @extend_schema(summary="Read a model's samples", description=_READ, responses=SampleSetSerializer)
    def get(self, request: Request, **_address: Any) -> Response:
        return tagged(request, _of_model(self.model))

    @extend_schema(
        summary="Replace a model's samples", description=_WRITE, request=SampleSetWrite, responses=SampleSetSerializer
    )
    def put(self, request: Request, **_address: Any) -> Response:
        given = self.read(SampleSetWrite)
        with matched(request, self.model, _of_model) as model:
            samples_save(model=model, samples=given["samples"], actor=self.actor)
        return tagged(request, _of_model(model))


class VersionSamples(VersionView):
    """The samples of one version, which count before those of its files and of its model."""

    @extend_schema(summary="Read a version's samples", description=_READ, responses=SampleSetSerializer)
    def get(self, request: Request, **_address: Any) -> Response:
        return tagged(request, _of_version(self.version))

    @extend_schema(
        summary="Replace a version's samples", description=_WRITE, request=SampleSetWrite, responses=SampleSetSerializer
    )
    def put(self, request: Request, **_address: Any) -> Response:
        given = self.read(SampleSetWrite)
        with matched(request, self.version, _of_version) as version:
            samples_save(model=version.model, version=version, samples=given["samples"], actor=self.actor)
        return tagged(request, _of_version(version))


def _of_model(model: RegisteredModel) -> dict[str, Any]:
    return _document(sample_set(model))


def _of_version(version: ModelVersion) -> dict[str, Any]:
    return _document(sample_set(version.model, version))


def _document(found: SampleSet | None) -> dict[str, Any]:
    if found is None:
        return {"samples": [], "sha256": "", "updated_by": None, "updated_at": None}
    return {
        "samples": found.samples,
        "sha256": found.sha256,
        "updated_by": found.author.username,
        "updated_at": found.updated_at,
    }
