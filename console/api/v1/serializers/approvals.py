"""Requests for approval, what they would do, and reviews, as JSON."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.v1.serializers.catalog import FieldChangeSerializer
from registry.domain.protection import Standing
from registry.models import ApprovalRequest, Check, Review, ReviewDecision
from registry.services.approval_contents import PlannedVersion


class ApprovalSerializer(serializers.ModelSerializer[ApprovalRequest]):
    """A request that a plan may happen."""

    project = serializers.CharField(source="project.slug", read_only=True)
    environment = serializers.CharField(source="environment.slug", read_only=True)
    requester = serializers.CharField(source="requester.username", read_only=True)
    model = serializers.CharField(source="deployment.model.slug", read_only=True)
    fleet = serializers.CharField(source="deployment.fleet.slug", read_only=True)
    bypassed_by = serializers.CharField(source="bypassed_by.username", read_only=True, allow_null=True, default=None)
    due_at = serializers.DateTimeField(source="starts_at", read_only=True, allow_null=True, default=None)

    class Meta:
        model = ApprovalRequest
        fields = [
            "id",
            "project",
            "model",
            "fleet",
            "environment",
            "deployment",
            "state",
            "state_reason",
            "comment",
            "requester",
            "spec",
            "plan",
            "plan_digest",
            "created_at",
            "expires_at",
            "approved_at",
            "due_at",
            "applied_at",
            "bypassed_by",
            "bypass_reason",
        ]


class ReviewSerializer(serializers.ModelSerializer[Review]):
    """One decision."""

    reviewer = serializers.CharField(source="reviewer.username", read_only=True)

    class Meta:
        model = Review
        fields = ["id", "reviewer", "decision", "comment", "plan_digest", "created_at"]


class ReviewWrite(serializers.Serializer[Any]):
    """A decision about the plan with this digest; a comment needs no digest."""

    decision = serializers.ChoiceField(choices=ReviewDecision.choices)
    plan_digest = serializers.CharField(max_length=64, required=False, allow_blank=True, default="")
    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)


class BypassWrite(serializers.Serializer[Any]):
    """Why the rules are bypassed for the plan with this digest."""

    reason = serializers.CharField(max_length=2000)
    plan_digest = serializers.CharField(max_length=64)


class FindingSerializer(serializers.Serializer[Any]):
    """How one rule stands: met, unmet or waits; ``until`` is when a waiting one is met by the clock."""

    rule = serializers.CharField()
    standing = serializers.ChoiceField(choices=[one.value for one in Standing])
    sentence = serializers.CharField()
    until = serializers.DateTimeField(allow_null=True)


class PlannedCheckSerializer(serializers.ModelSerializer[Check]):
    """How one check of a version of the plan ended."""

    class Meta:
        model = Check
        fields = ["kind", "verdict", "summary", "finished_at"]


class PlannedVersionSerializer(serializers.Serializer[Any]):
    """A version of the plan; ``signer`` is null where nobody is known to have signed it."""

    model = serializers.CharField(source="version.model.slug")
    number = serializers.IntegerField(source="version.number")
    manifest_digest = serializers.CharField(source="version.manifest_digest")
    size_bytes = serializers.IntegerField(source="version.size_bytes")
    format = serializers.CharField(source="version.format")
    author = serializers.CharField(source="version.author.username")
    git_sha = serializers.CharField(source="version.source.git_sha", default="")
    signer = serializers.SerializerMethodField()
    checks = PlannedCheckSerializer(many=True)

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": {}})
    def get_signer(self, planned: PlannedVersion) -> dict[str, Any] | None:
        """Return whom a check that passed found as the signer."""
        signed = planned.signing is not None and planned.signing.verdict == "pass"
        return planned.signing.evidence.get("signer") if planned.signing is not None and signed else None


class PlannedConfigSerializer(serializers.Serializer[Any]):
    """A config of the plan that does not serve there yet, and what differs from the one it replaces."""

    number = serializers.IntegerField(source="config.number")
    digest = serializers.CharField(source="config.digest")
    author = serializers.CharField(source="config.author.username")
    comment = serializers.CharField(source="config.comment")
    replaces = serializers.IntegerField(source="before.number", allow_null=True, default=None)
    changes = FieldChangeSerializer(many=True)


class TargetSerializer(serializers.Serializer[Any]):
    """Where the change would happen: the labels of the fleet's nodes, and the nodes that carry them now."""

    selector = serializers.DictField(child=serializers.CharField())
    nodes = serializers.ListField(child=serializers.CharField())
    requests_per_second = serializers.FloatField()


class ApprovalDetailSerializer(ApprovalSerializer):
    """A request with what it would do, its reviews, and whether the caller may decide."""

    reviews = ReviewSerializer(many=True, read_only=True)
    required = serializers.IntegerField(read_only=True)  # type: ignore[assignment]
    approvals_given = serializers.IntegerField(read_only=True)
    may_review = serializers.BooleanField(read_only=True)
    may_review_reason = serializers.CharField(read_only=True)
    changes_requested = serializers.IntegerField(read_only=True)
    may_bypass = serializers.BooleanField(read_only=True)
    may_bypass_reason = serializers.CharField(read_only=True)
    still_asked = serializers.ListField(child=serializers.CharField(), read_only=True)
    protection = FindingSerializer(many=True, read_only=True)
    versions = PlannedVersionSerializer(many=True, read_only=True)
    configs = PlannedConfigSerializer(many=True, read_only=True)
    routes_before = serializers.ListField(child=serializers.DictField(), read_only=True)
    target = TargetSerializer(read_only=True)

    class Meta(ApprovalSerializer.Meta):
        fields = [
            *ApprovalSerializer.Meta.fields,
            "reviews",
            "required",
            "approvals_given",
            "may_review",
            "may_review_reason",
            "changes_requested",
            "may_bypass",
            "may_bypass_reason",
            "still_asked",
            "protection",
            "versions",
            "configs",
            "routes_before",
            "target",
        ]
