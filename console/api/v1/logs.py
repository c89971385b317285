"""The newest lines of nodes' logs."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.v1.deployments import DeploymentView
from console.api.v1.serializers.operations import LogsWrite, OperationSerializer
from console.api.views import ApiView, accepted
from registry.selectors.fleet import node_get
from registry.services import logs as services

_RESULT = "The result of the operation is ``{nodes: [{node, lines, error}]}``, oldest line first, kept an hour."


class NodeLogs(ApiView):
    """Of one node."""

    write_scope = "admin"

    @extend_schema(
        summary="Fetch a node's log", description=_RESULT, request=LogsWrite, responses={202: OperationSerializer}
    )
    def post(self, request: Request, node: uuid.UUID) -> Response:
        row = node_get(self.actor, node)
        operation = services.node_logs(node=row, **self.read(LogsWrite), actor=self.actor)
        return accepted(operation.pk, OperationSerializer(operation).data)


class DeploymentLogs(DeploymentView):
    """Of every node of a deployment."""

    @extend_schema(
        summary="Fetch what the nodes of a deployment log about it",
        description=f"Only lines that name the served model. {_RESULT}",
        request=LogsWrite,
        responses={202: OperationSerializer},
    )
    def post(self, request: Request, project: str, deployment: uuid.UUID) -> Response:
        operation = services.deployment_logs(deployment=self.deployment, **self.read(LogsWrite), actor=self.actor)
        return accepted(operation.pk, OperationSerializer(operation).data)
