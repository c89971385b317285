"""Nodes, and how a node joins."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.etag import matched, tagged
from console.api.json_types import validated
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.fleet import (
    DrainWrite,
    HelloWrite,
    JoinTokenCreated,
    JoinTokenSerializer,
    JoinTokenWrite,
    JoinWrite,
    NodeIdentity,
    NodeSerializer,
)
from console.api.views import AlwaysJson, ApiView
from console.identity.tokens import NodePrincipal
from console.middleware.request_context import facts_of
from registry.models import ServingNode
from registry.selectors import fleet as selectors
from registry.services import fleet as services
from registry.services.permissions import require


class NodeList(ApiView):
    """Nodes that are not retired."""

    listing = Listing(("state", "name", "kind"), order=("name",), orderings=("name", "created_at"), also=("fleet",))

    @extend_schema(
        summary="List nodes",
        parameters=[OpenApiParameter("fleet", description="Nodes of that fleet only.")],
        responses=paged(NodeSerializer),
    )
    def get(self, request: Request) -> Response:
        fleet = request.query_params.get("fleet")
        nodes = selectors.nodes_of(selectors.fleet_by_slug(fleet)) if fleet else selectors.nodes_joined()
        return self.page(nodes, NodeSerializer, shown=selectors.node_rows)


class NodeItem(ApiView):
    """One node."""

    @extend_schema(summary="Read a node", responses=NodeSerializer)
    def get(self, request: Request, node: uuid.UUID) -> Response:
        return _node_answer(request, selectors.node_get(self.actor, node))


class NodeMove(ApiView):
    """Cordon, uncordon, drain or retire a node (``verb`` from the address)."""

    checks_match = True
    write_scope = "admin"
    verb = ""

    @extend_schema(summary="Change what a node takes", request=DrainWrite, responses=NodeSerializer)
    def post(self, request: Request, node: uuid.UUID) -> Response:
        moves = {"cordon": services.node_cordon, "uncordon": services.node_uncordon, "retire": services.node_retire}
        row, given = selectors.node_get(self.actor, node), self.read(DrainWrite)
        with matched(request, row, _version_of) as row:
            if self.verb == "drain":
                services.node_drain(node=row, **given, actor=self.actor)
            else:
                moves[self.verb](node=row, actor=self.actor)
        row.refresh_from_db()
        return _node_answer(request, row)


class JoinTokenList(ApiView):
    """Tokens with which nodes join."""

    listing = Listing(times=("created_at", "expires_at"), orderings=("created_at", "expires_at"))

    write_scope = "admin"
    keeps_answers = False

    @extend_schema(summary="List unused join tokens", responses=paged(JoinTokenSerializer))
    def get(self, request: Request) -> Response:
        require(self.actor, "site.fleet")
        return self.page(selectors.join_tokens(), JoinTokenSerializer)

    @extend_schema(summary="Create a join token", request=JoinTokenWrite, responses={201: JoinTokenCreated})
    def post(self, request: Request) -> Response:
        row, token = services.join_token_create(**self.read(JoinTokenWrite), actor=self.actor)
        return Response({**JoinTokenSerializer(row).data, "token": token}, status=201)


class NodeJoin(APIView):
    """A node's first word. Its one-time token is the credential."""

    authentication_classes: list[type[BaseAuthentication]] = []
    permission_classes: list[type[BasePermission]] = [AllowAny]
    content_negotiation_class = AlwaysJson

    @extend_schema(summary="Join as a node", request=JoinWrite, responses={201: NodeIdentity}, auth=[])
    def post(self, request: Request) -> Response:
        node, token = services.node_join(**validated(JoinWrite(data=request.data)), ip=facts_of(request._request).ip)
        return Response({"node": str(node.pk), "node_token": token, "epoch": node.epoch}, status=201)


class NodeHello(APIView):
    """A restarted node's word, with its own token."""

    content_negotiation_class = AlwaysJson

    @extend_schema(summary="Announce a restarted node", request=HelloWrite, responses=NodeIdentity)
    def post(self, request: Request, node: uuid.UUID) -> Response:
        principal: Any = request.user
        if not isinstance(principal, NodePrincipal) or principal.node.pk != node:
            raise Http404
        given = validated(HelloWrite(data=request.data))
        words = {key: given[key] for key in ("endpoints", "admin_secret", "inventory")}
        row = services.node_hello(node=principal.node, **words)
        return Response({"node": str(row.pk), "epoch": row.epoch})


def _node_answer(request: Request, node: ServingNode) -> Response:
    return tagged(request, NodeSerializer(selectors.node_row(node)).data, version=_version_of(node))


def _version_of(node: ServingNode) -> dict[str, Any]:
    """What If-Match protects: what people decide about a node, not what it says."""
    wanted = ("state", "is_schedulable", "labels", "drain_deadline_seconds", "epoch")
    return {"id": str(node.pk), **{name: getattr(node, name) for name in wanted}}
