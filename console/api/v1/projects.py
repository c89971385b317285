"""Projects and their members."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, require_match, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.accounts import (
    MemberSerializer,
    MemberWrite,
    ProjectChange,
    ProjectSerializer,
    ProjectWrite,
)
from console.api.views import ApiView
from registry.models import Membership, Project, User
from registry.selectors import accounts as selectors
from registry.services import accounts as services
from registry.services.locking import held


class ProjectList(ApiView):
    """Projects of the caller."""

    listing = Listing(("slug",), orderings=("slug", "name", "created_at"))

    @extend_schema(summary="List projects", responses=paged(ProjectSerializer))
    def get(self, request: Request) -> Response:
        return self.page(selectors.projects_of(self.actor), ProjectSerializer)

    @extend_schema(summary="Create a project", request=ProjectWrite, responses={201: ProjectSerializer})
    def post(self, request: Request) -> Response:
        project = services.project_create(**self.read(ProjectWrite), actor=self.actor)
        return Response(ProjectSerializer(project).data, status=201)


class ProjectItem(ApiView):
    """One project."""

    @extend_schema(summary="Read a project", responses=ProjectSerializer)
    def get(self, request: Request, project: str) -> Response:
        return tagged(request, _document(self.project))

    @extend_schema(
        summary="Change a project",
        description="Its policies and quotas have addresses of their own.",
        request=ProjectChange,
        responses=ProjectSerializer,
    )
    def patch(self, request: Request, project: str) -> Response:
        with matched(request, self.project, _document) as row:
            given = self.read(ProjectChange)
            changed = services.project_update(project=row, **given, actor=self.actor) if given else row
        return tagged(request, _document(changed))


class MemberList(ApiView):
    """Who has which role in a project."""

    listing = Listing(("role", "user__username"), orderings=("user__username", "created_at"))

    write_scope = "admin"

    @extend_schema(summary="List members", responses=paged(MemberSerializer))
    def get(self, request: Request, project: str) -> Response:
        return self.page(selectors.members_of(self.project), MemberSerializer)

    @extend_schema(summary="Give an account a role", request=MemberWrite, responses={200: MemberSerializer})
    def post(self, request: Request, project: str) -> Response:
        given = self.read(MemberWrite)
        user = _user(given["username"])
        row = services.membership_set(project=self.project, user=user, role=given["role"], actor=self.actor)
        return Response(MemberSerializer(row).data)


class MemberItem(ApiView):
    """One member."""

    write_scope = "admin"

    @extend_schema(summary="Read a membership", responses=MemberSerializer)
    def get(self, request: Request, project: str, username: str) -> Response:
        return tagged(request, MemberSerializer(self._member()).data)

    @extend_schema(summary="Take an account out of a project", responses={204: None})
    def delete(self, request: Request, project: str, username: str) -> Response:
        with held(self.project) as locked:  # whoever changes members locks their project first
            member = self._member()
            require_match(request, MemberSerializer(member).data)
            services.membership_remove(project=locked, user=member.user, actor=self.actor)
        return Response(status=204)

    def _member(self) -> Membership:
        return selectors.member_get(self.project, self.kwargs["username"])


def _document(project: Project) -> dict[str, Any]:
    return dict(ProjectSerializer(project).data)


def _user(username: str) -> User:
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise Http404
    return user
