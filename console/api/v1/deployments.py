"""Deployments: what is served where, and how to change it."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import require_match, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.deployments import (
    ChangeOutcomeSerializer,
    ChangeWrite,
    DeploymentSerializer,
    DeploymentStatusSerializer,
    InferWrite,
    PlanWrite,
    RolloutSerializer,
    TrafficWrite,
)
from console.api.v1.serializers.operations import OperationSerializer
from console.api.views import ApiView, accepted
from registry.domain.plans import DeploymentSpec
from registry.models import Deployment, RegisteredModel
from registry.selectors import deployments as selectors
from registry.selectors.aliases import version_named, with_version_numbers
from registry.selectors.fleet import fleet_by_slug
from registry.selectors.models import model_get
from registry.services import deployments as services
from registry.services.operations import try_it

# 202: it goes on; 200: there was nothing to change.
CHANGE = {200: ChangeOutcomeSerializer, 202: ChangeOutcomeSerializer}


class DeploymentList(ApiView):
    """Deployments of a project."""

    listing = Listing(
        ("model__slug", "fleet__slug", "fleet__environment__slug", "served_name", "sync", "health"),
        orderings=("served_name", "created_at"),
    )

    @extend_schema(
        summary="List deployments",
        responses=paged(DeploymentSerializer),
    )
    def get(self, request: Request, project: str) -> Response:
        rows = selectors.deployments_visible_to(self.actor).filter(project=self.project)
        return self.page(rows, DeploymentSerializer)

    @extend_schema(
        summary="Deploy, or change a deployment",
        description="202: it is being rolled out, or waits for approval. 200: nothing to change.",
        request=ChangeWrite,
        responses=CHANGE,
    )
    def post(self, request: Request, project: str) -> Response:
        given = self.read(ChangeWrite)
        model = model_get(self.actor, project, given["model"])
        outcome = services.deployment_change(
            model=model,
            fleet=fleet_by_slug(given["fleet"]),
            spec=_spec(model, given["spec"]),
            comment=given["comment"],
            actor=self.actor,
        )
        return change_answer(outcome)


class DeploymentPlan(ApiView):
    """What a spec would change, for a model on a fleet where there may be no deployment yet."""

    @extend_schema(summary="Plan a deployment", request=ChangeWrite, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, project: str) -> Response:
        given = self.read(ChangeWrite)
        model = model_get(self.actor, project, given["model"])
        plan = services.deployment_plan(
            model=model,
            fleet=fleet_by_slug(given["fleet"]),
            spec=_spec(model, given["spec"]),
            actor=self.actor,
        )
        return Response(plan.to_json())


class DeploymentView(ApiView):
    """Base of what is below one deployment."""

    @property
    def deployment(self) -> Deployment:
        """Return the deployment of the address."""
        deployment = selectors.deployment_get(self.actor, self.kwargs["deployment"])
        if deployment.project_id != self.project.pk:
            raise Http404
        return deployment

    def match(self, request: Request, deployment: Deployment) -> int | None:
        """Refuse a write whose If-Match names another generation than the present one.

        Returns the generation, which the service looks at again under the lock; None without the header.
        """
        require_match(request, _version_of(deployment))
        return deployment.generation if request.headers.get("If-Match", "*").strip() != "*" else None


class DeploymentItem(DeploymentView):
    """One deployment and what its nodes say."""

    @extend_schema(summary="Read a deployment", responses=DeploymentStatusSerializer)
    def get(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        row = self.deployment
        document = DeploymentStatusSerializer(selectors.deployment_status(row)).data
        return tagged(request, document, version=_version_of(row))


class DeploymentItemPlan(DeploymentView):
    """What another spec would change."""

    @extend_schema(summary="Plan a change", request=PlanWrite, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        row = self.deployment
        spec = _spec(row.model, self.read(PlanWrite)["spec"])
        plan = services.deployment_plan(model=row.model, fleet=row.fleet, spec=spec, actor=self.actor)
        return Response(plan.to_json())


class DeploymentRoutes(DeploymentView):
    """Traffic weights."""

    checks_match = True

    @extend_schema(summary="Move traffic", request=TrafficWrite, responses=CHANGE)
    def post(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        row = self.deployment
        generation, given = self.match(request, row), self.read(TrafficWrite)
        return change_answer(
            services.deployment_traffic(deployment=row, **given, generation=generation, actor=self.actor)
        )


class DeploymentRollback(DeploymentView):
    """Back to the spec before the present one."""

    checks_match = True

    @extend_schema(summary="Roll back", request=None, responses=CHANGE)
    def post(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        row = self.deployment
        generation = self.match(request, row)
        return change_answer(services.deployment_rollback(deployment=row, generation=generation, actor=self.actor))


class DeploymentInfer(DeploymentView):
    """Try it: one prediction through a worker."""

    @extend_schema(summary="Try a prediction", request=InferWrite, responses={202: OperationSerializer})
    def post(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        given = self.read(InferWrite)
        body: dict[str, Any] = {key: given[key] for key in ("inputs", "outputs", "parameters") if key in given}
        operation = try_it(
            deployment=self.deployment,
            inputs=body,
            version=self._number(given["version"]),
            unit=given["unit"],
            actor=self.actor,
        )
        return accepted(operation.pk, OperationSerializer(operation).data)

    def _number(self, reference: int | str | None) -> int | None:
        return reference if reference is None else version_named(self.deployment.model, reference).number


class RolloutList(DeploymentView):
    """Changes of a deployment, newest first."""

    listing = Listing(("phase", "kind"))

    @extend_schema(summary="List rollouts", responses=paged(RolloutSerializer))
    def get(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        return self.page(selectors.rollouts_of(self.deployment), RolloutSerializer)


def _version_of(deployment: Deployment) -> dict[str, Any]:
    """What If-Match protects: the wanted state, not what is observed."""
    return {"id": str(deployment.pk), "generation": deployment.generation}


def _spec(model: RegisteredModel, document: dict[str, Any]) -> DeploymentSpec:
    return DeploymentSpec.from_json(with_version_numbers(model, document))


def change_answer(outcome: services.ChangeOutcome) -> Response:
    """Return 202 with where to follow what was asked, or 200 when there was nothing to change."""
    document = ChangeOutcomeSerializer(outcome).data
    if outcome.operation is not None:
        return accepted(outcome.operation.pk, document)
    if outcome.approval is not None:
        return Response(document, status=202, headers={"Location": f"/api/v1/approvals/{outcome.approval.pk}/"})
    return Response(document)
