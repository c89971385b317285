"""Models, versions, files, checks and configs as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.v1.serializers.deployments import VersionReference
from registry.domain.model_facts import MAX_LABEL, MAX_URL
from registry.domain.parts import MOST_PARTS
from registry.models import Check, ConfigRevision, ModelVersion, RegisteredModel, Upload, VersionFile
from registry.services.direct_uploads import MOST_AT_ONCE
from serving_node.contract.conversion import ConversionReport
from serving_node.contract.errors import ContractError


class ModelSerializer(serializers.ModelSerializer[RegisteredModel]):
    """A registered model."""

    project = serializers.CharField(source="project.slug", read_only=True)
    owner = serializers.CharField(source="owner.username", read_only=True)

    class Meta:
        model = RegisteredModel
        fields = ["id", "project", "slug", "state", "description", "task", "tags", "links", "owner", "created_at"]


class LinkWrite(serializers.Serializer[Any]):
    """Where to read more: a label and an https address."""

    label = serializers.CharField(max_length=MAX_LABEL)  # type: ignore[assignment]
    url = serializers.CharField(max_length=MAX_URL)


class ModelWrite(serializers.Serializer[Any]):
    """A new model."""

    slug = serializers.CharField(max_length=128)
    description = serializers.CharField(required=False, allow_blank=True, default="")
    tags = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False, default=dict)
    task = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)
    links = LinkWrite(many=True, required=False, default=list)


class ModelImpactSerializer(serializers.Serializer[Any]):
    """What goes when a model is deleted; ``bytes_released`` is content that nothing else holds."""

    versions = serializers.IntegerField()
    configs = serializers.IntegerField()
    aliases = serializers.IntegerField()
    card_revisions = serializers.IntegerField()
    deployments = serializers.IntegerField()
    files = serializers.IntegerField()
    bytes_released = serializers.IntegerField()


class ModelChange(serializers.Serializer[Any]):
    """What may change on a model; fields left out stay. ``owner`` is the name of a member."""

    description = serializers.CharField(required=False, allow_blank=True)
    tags = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)
    task = serializers.CharField(required=False, allow_blank=True, max_length=64)
    links = LinkWrite(many=True, required=False)
    owner = serializers.CharField(required=False, max_length=150)


class VersionNameSerializer(serializers.ModelSerializer[ModelVersion]):
    """A version by name."""

    model = serializers.CharField(source="model.slug", read_only=True)

    class Meta:
        model = ModelVersion
        fields = ["id", "model", "number", "state"]


class VersionSerializer(serializers.ModelSerializer[ModelVersion]):
    """A version; ``number`` is null until its checks have passed."""

    model = serializers.CharField(source="model.slug", read_only=True)
    project = serializers.CharField(source="model.project.slug", read_only=True)
    author = serializers.CharField(source="author.username", read_only=True)
    code_permitted_by = serializers.CharField(
        source="code_permitted_by.username", read_only=True, allow_null=True, default=None
    )
    code_withdrawn_by = serializers.CharField(
        source="code_withdrawn_by.username", read_only=True, allow_null=True, default=None
    )
    aliases = serializers.ListField(child=serializers.CharField(), read_only=True, source="alias_names")
    parent = VersionNameSerializer(read_only=True, default=None)

    class Meta:
        model = ModelVersion
        fields = [
            "id",
            "project",
            "model",
            "number",
            "aliases",
            "state",
            "state_reason",
            "format",
            "manifest_digest",
            "size_bytes",
            "signature",
            "source",
            "parent",
            "metrics",
            "metadata",
            "author",
            "created_at",
            "ready_at",
            "code_files",
            "code_permitted_by",
            "code_permitted_at",
            "code_withdrawn_by",
            "code_withdrawn_at",
            "code_withdrawn_reason",
        ]

    def to_representation(self, instance: ModelVersion) -> dict[str, Any]:
        """Return what the fields above would, which ask a hundred times as much about each of a hundred rows."""
        permitted_by, withdrawn_by = instance.code_permitted_by, instance.code_withdrawn_by
        return {
            "id": str(instance.pk),
            "project": instance.model.project.slug,
            "model": instance.model.slug,
            "number": instance.number,
            "aliases": instance.alias_names,
            "state": str(instance.state),
            "state_reason": instance.state_reason,
            "format": instance.format,
            "manifest_digest": instance.manifest_digest,
            "size_bytes": instance.size_bytes,
            "signature": instance.signature,
            "source": instance.source,
            "parent": _name(instance.parent) if instance.parent is not None else None,
            "metrics": instance.metrics,
            "metadata": instance.metadata,
            "author": instance.author_name,
            "created_at": _moment(instance.created_at),
            "ready_at": _moment(instance.ready_at),
            "code_files": instance.code_files,
            "code_permitted_by": permitted_by.username if permitted_by is not None else None,
            "code_permitted_at": _moment(instance.code_permitted_at),
            "code_withdrawn_by": withdrawn_by.username if withdrawn_by is not None else None,
            "code_withdrawn_at": _moment(instance.code_withdrawn_at),
            "code_withdrawn_reason": instance.code_withdrawn_reason,
        }


def _name(version: ModelVersion) -> dict[str, Any]:
    return {
        "id": str(version.pk),
        "model": version.model.slug,
        "number": version.number,
        "state": str(version.state),
    }


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class ParentWrite(serializers.Serializer[Any]):
    """A version of a model of the project, by number or alias; the model is this one when it is left out."""

    model = serializers.CharField(max_length=128, required=False)
    version = VersionReference()


class VersionWrite(serializers.Serializer[Any]):
    """A new version: where it comes from, numbers about it, and free metadata.

    ``source`` knows git_sha, git_ref, repository, ci_run, author and dataset; all are texts.
    """

    source = serializers.DictField(required=False, default=dict)  # type: ignore[assignment]
    metadata = serializers.DictField(required=False, default=dict)
    metrics = serializers.DictField(child=serializers.FloatField(), required=False, default=dict)
    parent = ParentWrite(required=False, allow_null=True, default=None)


class VersionChange(serializers.Serializer[Any]):
    """New metadata or metrics; what is left out stays, what is given replaces all of it."""

    metadata = serializers.DictField(required=False)
    metrics = serializers.DictField(child=serializers.FloatField(), required=False)


class LineageSerializer(serializers.Serializer[Any]):
    """``ancestors`` nearest first, ``children`` newest first."""

    ancestors = VersionNameSerializer(many=True)
    children = VersionNameSerializer(many=True)


class RankedSerializer(VersionNameSerializer):
    """A version with its value of the metric."""

    value = serializers.FloatField(source="metric_value")
    aliases = serializers.ListField(child=serializers.CharField(), read_only=True, source="alias_names")

    class Meta(VersionNameSerializer.Meta):
        fields = [*VersionNameSerializer.Meta.fields, "value", "aliases"]


class RankingSerializer(serializers.Serializer[Any]):
    """The best versions by one metric, at most 100."""

    metric = serializers.CharField()
    results = RankedSerializer(many=True)


class DifferenceSerializer(serializers.Serializer[Any]):
    """One fact on both sides; null where a side has none. ``change``: after minus before, of numbers."""

    name = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    change = serializers.FloatField(allow_null=True)


class ComparisonSerializer(serializers.Serializer[Any]):
    """What differs between two versions. Metrics are all listed; ``files`` are SHA-256 by path."""

    before = VersionNameSerializer()
    after = VersionNameSerializer()
    facts = DifferenceSerializer(many=True)
    metrics = DifferenceSerializer(many=True)
    signature = DifferenceSerializer(many=True)
    files = DifferenceSerializer(many=True)
    same_files = serializers.IntegerField()
    source = DifferenceSerializer(many=True)  # type: ignore[assignment]
    metadata = DifferenceSerializer(many=True)
    checks = DifferenceSerializer(many=True)
    configs = DifferenceSerializer(many=True)


class PreviewSerializer(serializers.Serializer[Any]):
    """The beginning of a file as text; ``is_text`` false: it is none."""

    path = serializers.CharField()
    size = serializers.IntegerField()
    is_text = serializers.BooleanField()
    text = serializers.CharField(allow_blank=True)
    is_cut = serializers.BooleanField()


class ReasonWrite(serializers.Serializer[Any]):
    """Why."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)


class FileSerializer(serializers.ModelSerializer[VersionFile]):
    """A file of a version."""

    sha256 = serializers.CharField(source="blob.sha256", read_only=True)
    size = serializers.IntegerField(source="blob.size", read_only=True)

    class Meta:
        model = VersionFile
        fields = ["path", "size", "sha256"]


class UploadSerializer(serializers.ModelSerializer[Upload]):
    """A file that is being uploaded, or was. ``sha256`` is over all its bytes, once the server has read them.

    Parts (``is_part``) have a ``position`` in their file, and ``whole`` once they are joined.
    ``part_bytes``: it goes to the object store directly, in parts of that size.
    """

    class Meta:
        model = Upload
        fields = [
            "id",
            "path",
            "length",
            "offset",
            "part_bytes",
            "state",
            "sha256",
            "error",
            "is_part",
            "position",
            "whole",
            "created_at",
            "expires_at",
        ]


class UploadWrite(serializers.Serializer[Any]):
    """Begins an upload in parts."""

    path = serializers.CharField(max_length=500, trim_whitespace=False)
    length = serializers.IntegerField(min_value=1, max_value=2**62)


class PartsWrite(serializers.Serializer[Any]):
    """For which parts addresses are wanted, the first is 1."""

    numbers = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=MOST_PARTS), min_length=1, max_length=MOST_AT_ONCE
    )


class PartAddressSerializer(serializers.Serializer[Any]):
    """Where a part of ``size`` bytes is PUT with these headers, without any other credentials, until it expires."""

    number = serializers.IntegerField()
    size = serializers.IntegerField()
    url = serializers.CharField()
    headers = serializers.DictField(child=serializers.CharField())
    expires_at = serializers.DateTimeField()


class PartAddressesSerializer(serializers.Serializer[Any]):
    """Addresses of parts."""

    parts = PartAddressSerializer(many=True)


class PartsSerializer(serializers.Serializer[Any]):
    """Which parts the store has."""

    part_bytes = serializers.IntegerField()
    count = serializers.IntegerField()
    present = serializers.ListField(child=serializers.IntegerField())


class UploadComplete(serializers.Serializer[Any]):
    """What all parts together are."""

    sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")


class FileWrite(serializers.Serializer[Any]):
    """Adds content that the caller can read already, without sending it."""

    path = serializers.CharField(max_length=500, trim_whitespace=False)
    sha256 = serializers.RegexField(r"^[0-9a-f]{64}$")


class SizesSerializer(serializers.Serializer[Any]):
    """Sizes of files in bytes."""

    sizes = serializers.ListField(child=serializers.IntegerField(min_value=0, max_value=2**62), max_length=10_000)


class FetchWrite(serializers.Serializer[Any]):
    """Where the files are: one file of a web server, or everything below a prefix of a store."""

    address = serializers.CharField(max_length=2000)


class CheckSerializer(serializers.ModelSerializer[Check]):
    """One verdict."""

    class Meta:
        model = Check
        fields = ["kind", "verdict", "summary", "evidence", "log", "started_at", "finished_at"]


@extend_schema_field(OpenApiTypes.OBJECT)
class ReportField(serializers.Field[ConversionReport, Any, Any, Any]):
    """A conversion report as ``flotilla convert --report`` writes it."""

    def to_internal_value(self, data: Any) -> ConversionReport:
        """Return the report. Raises ValidationError with the path of what is wrong."""
        try:
            return ConversionReport.from_json(data)
        except ContractError as error:
            raise serializers.ValidationError({error.field or "report": error.message}) from error


class ConversionWrite(serializers.Serializer[Any]):
    """How the file of the version was made from another one; only before the version is submitted."""

    report = ReportField()


class ConfigSerializer(serializers.ModelSerializer[ConfigRevision]):
    """A config revision; ``body`` is ModelConfig with proto field names."""

    model = serializers.CharField(source="model.slug", read_only=True)
    author = serializers.CharField(source="author.username", read_only=True)
    parent = serializers.IntegerField(source="parent.number", read_only=True, allow_null=True, default=None)  # type: ignore[assignment]

    class Meta:
        model = ConfigRevision
        fields = [
            "id",
            "model",
            "number",
            "digest",
            "body",
            "source_text",
            "source_format",
            "comment",
            "author",
            "parent",
            "created_at",
        ]


class ConfigDetail(ConfigSerializer):
    """A config revision with its text as config.pbtxt."""

    pbtxt = serializers.CharField(read_only=True)

    class Meta(ConfigSerializer.Meta):
        fields = [*ConfigSerializer.Meta.fields, "pbtxt"]


class ConfigCheck(serializers.Serializer[Any]):
    """A config to judge: ``body`` or ``text`` in ``format``; compared with the inputs and outputs of ``version``."""

    body = serializers.DictField(required=False, allow_null=True, default=None)
    text = serializers.CharField(
        required=False, allow_blank=True, default="", trim_whitespace=False, max_length=1 << 20
    )
    format = serializers.ChoiceField(choices=["form", "pbtxt", "json"], default="json")
    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class ConfigWrite(ConfigCheck):
    """A new revision; ``parent`` is the number that it was edited from."""

    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)
    parent = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)  # type: ignore[assignment]


class ConfigComment(serializers.Serializer[Any]):
    """Why; without a comment it names where the content comes from."""

    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class ConfigCopyWrite(ConfigComment):
    """Where a config is copied from: a model (of another project that the caller reads, if named) and its revision.

    ``number`` 0 is the newest.
    """

    project = serializers.SlugField(required=False, allow_blank=True, default="", max_length=63)
    model = serializers.CharField(max_length=128)
    number = serializers.IntegerField(required=False, default=0, min_value=0, max_value=2**31 - 1)


class TextDiffSerializer(serializers.Serializer[Any]):
    """A unified diff of two revisions as config.pbtxt; ``diff`` is empty when they are equal."""

    before = serializers.IntegerField()
    after = serializers.IntegerField()
    diff = serializers.CharField(allow_blank=True)


class FieldProblem(serializers.Serializer[Any]):
    """A field and what is wrong with it."""

    field = serializers.CharField()
    message = serializers.CharField()


class ConfigEffectSerializer(serializers.Serializer[Any]):
    """What a config would do to a deployment of the model, if it were deployed there.

    ``configs`` serve there now. ``is_same``: nothing changes. Else each node loads it beside what serves, then
    switches. ``only_instances``: a node that serves from a folder of its own would change it in place.
    """

    deployment = serializers.UUIDField(source="deployment.pk")
    served_name = serializers.CharField(source="deployment.served_name")
    fleet = serializers.CharField(source="deployment.fleet.slug")
    environment = serializers.CharField(source="deployment.fleet.environment.slug")
    configs = serializers.ListField(child=serializers.IntegerField())
    nodes = serializers.ListField(child=serializers.CharField())
    is_same = serializers.BooleanField()
    only_instances = serializers.BooleanField()
    request_rate = serializers.FloatField()


class ConfigReportSerializer(serializers.Serializer[Any]):
    """What the contract says about a config, and what deploying it would do on the nodes; nothing of a wrong one."""

    ok = serializers.BooleanField()
    errors = FieldProblem(many=True)  # type: ignore[assignment]
    warnings = serializers.ListField(child=serializers.CharField())
    body = serializers.DictField(allow_null=True)
    pbtxt = serializers.CharField()
    digest = serializers.CharField()
    affects = ConfigEffectSerializer(many=True)


class FieldChangeSerializer(serializers.Serializer[Any]):
    """One difference of two configs."""

    path = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
