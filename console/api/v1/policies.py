"""What a project asks of its versions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.v1.serializers.policies import PoliciesChange, PoliciesSerializer
from console.api.views import ApiView
from registry.domain.actors import Actor
from registry.domain.sizes import limits_json
from registry.models import Project
from registry.selectors.policies import licence_policy_of, size_limits_of
from registry.services.code import project_code_formats
from registry.services.policies import licence_policy_set, size_limits_set
from registry.services.signing import signing_policy_set

_CODE = ("code_formats", "pickles_known_only")


class ProjectPolicies(ApiView):
    """Code, pickles, signatures, sizes and licences."""

    write_scope = "admin"

    @extend_schema(summary="Read the policies of a project", responses=PoliciesSerializer)
    def get(self, request: Request, project: str) -> Response:
        return tagged(request, _document(self.project))

    @extend_schema(
        summary="Change the policies of a project",
        description="Versions that are ready stay so, and what is deployed stays as it is.",
        request=PoliciesChange,
        responses=PoliciesSerializer,
    )
    def patch(self, request: Request, project: str) -> Response:
        with matched(request, self.project, _document) as row:
            changed = _change(row, self.read(PoliciesChange), self.actor)
        return tagged(request, _document(changed))


def _change(project: Project, given: dict[str, Any], actor: Actor) -> Project:
    code = {name: given[name] for name in _CODE if name in given}
    if code:
        project = project_code_formats(project=project, **code, actor=actor)
    if "signing_policy" in given:
        project = signing_policy_set(project=project, policy=given["signing_policy"], actor=actor)
    if "size_limits" in given:
        project = size_limits_set(project=project, limits=given["size_limits"], actor=actor)
    if "licence_policy" in given:
        project = licence_policy_set(project=project, policy=given["licence_policy"], actor=actor)
    return project


def _document(project: Project) -> dict[str, Any]:
    return {
        "code_formats": project.code_formats,
        "pickles_known_only": project.pickles_known_only,
        "signing_policy": project.signing_policy,
        "size_limits": limits_json(size_limits_of(project)),
        "own_size_limits": project.size_limits,
        "licence_policy": licence_policy_of(project).to_json(),
    }
