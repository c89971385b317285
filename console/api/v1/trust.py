"""CI without secrets: issuers of the site, rules of projects, and the exchange of a job's token."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.login_requests import LoginView
from console.api.v1.serializers.trust import (
    ExchangeAnswer,
    ExchangeFacts,
    ExchangeRequest,
    IssuerChange,
    IssuerSerializer,
    IssuerWrite,
    TrustRuleChange,
    TrustRuleSerializer,
    TrustRuleWrite,
)
from console.api.views import ApiView
from console.identity.attempts import ExchangeThrottle
from console.middleware.request_context import facts_of
from registry.models import Issuer, TrustRule
from registry.selectors import trust as selectors
from registry.services import ci_exchange, issuer_keys
from registry.services import trust as services


class IssuerList(ApiView):
    """Issuers whose tokens CI jobs may exchange here."""

    listing = Listing(("kind", "is_enabled"), order=("slug",), orderings=("slug", "created_at"))
    write_scope = "admin"
    asks_again = True

    @extend_schema(
        summary="List issuers",
        responses=paged(IssuerSerializer),
    )
    def get(self, request: Request) -> Response:
        return self.page(selectors.issuers(self.actor), IssuerSerializer)

    @extend_schema(
        summary="Put an issuer on the site's list",
        description="Without `url` that of GitHub or GitLab itself. Its keys are read at once.",
        request=IssuerWrite,
        responses={201: IssuerSerializer},
    )
    def post(self, request: Request) -> Response:
        issuer = services.issuer_create(**self.read(IssuerWrite), actor=self.actor)
        issuer_keys.issuer_read_keys(issuer=issuer, actor=self.actor)
        return Response(_issuer(selectors.issuer_get(self.actor, issuer.slug)), status=201)


class IssuerItem(ApiView):
    """One issuer."""

    write_scope = "admin"
    asks_again = True

    @extend_schema(summary="Read an issuer", responses=IssuerSerializer)
    def get(self, request: Request, issuer: str) -> Response:
        found = selectors.issuer_get(self.actor, issuer)
        return tagged(request, _issuer(found), version=_issuer_version(found))

    @extend_schema(
        summary="Change an issuer",
        description="Disabling it also ends the tokens that jobs of it have got.",
        request=IssuerChange,
        responses=IssuerSerializer,
    )
    def patch(self, request: Request, issuer: str) -> Response:
        with matched(request, selectors.issuer_get(self.actor, issuer), _issuer_version) as row:
            services.issuer_update(issuer=row, actor=self.actor, **self.read(IssuerChange))
        found = selectors.issuer_get(self.actor, issuer)
        return tagged(request, _issuer(found), version=_issuer_version(found))

    @extend_schema(
        summary="Take an issuer from the list",
        description="Refused while rules of projects name it.",
        responses={204: None},
    )
    def delete(self, request: Request, issuer: str) -> Response:
        with matched(request, selectors.issuer_get(self.actor, issuer), _issuer_version) as row:
            services.issuer_delete(issuer=row, actor=self.actor)
        return Response(status=204)


class IssuerReadKeys(ApiView):
    """Its public keys, now."""

    write_scope = "admin"

    @extend_schema(
        summary="Read the keys of an issuer now",
        description="They are also read by themselves, when they are an hour old or a token names a new one.",
        request=None,
        responses=IssuerSerializer,
    )
    def post(self, request: Request, issuer: str) -> Response:
        found = selectors.issuer_get(self.actor, issuer)
        issuer_keys.issuer_read_keys(issuer=found, actor=self.actor)
        return Response(_issuer(found))


class TrustRuleList(ApiView):
    """Which CI jobs may act in a project."""

    listing = Listing(("name", "issuer__slug"), orderings=("name", "created_at"))
    write_scope = "admin"
    asks_again = True

    @extend_schema(
        summary="List trust rules",
        responses=paged(TrustRuleSerializer),
    )
    def get(self, request: Request, project: str) -> Response:
        rows = selectors.trust_rules(self.project)
        return self.page(rows, TrustRuleSerializer)

    @extend_schema(
        summary="Let jobs of a repository act as a service account",
        request=TrustRuleWrite,
        responses={201: TrustRuleSerializer},
    )
    def post(self, request: Request, project: str) -> Response:
        place = self.project
        given = self.read(TrustRuleWrite)
        given["issuer"] = selectors.issuer_get(self.actor, given["issuer"])
        given["service_account"] = selectors.trustable_account(place, given["service_account"])
        rule = services.trust_rule_create(project=place, actor=self.actor, **given)
        return Response(_rule(rule), status=201)


class TrustRuleItem(ApiView):
    """One rule."""

    write_scope = "admin"
    asks_again = True

    @extend_schema(summary="Read a trust rule", responses=TrustRuleSerializer)
    def get(self, request: Request, project: str, rule: uuid.UUID) -> Response:
        row = selectors.trust_rule_get(self.project, rule)
        return tagged(request, _rule(row), version=_rule_version(row))

    @extend_schema(
        summary="Change a trust rule",
        description="Tokens that it has given end at once.",
        request=TrustRuleChange,
        responses=TrustRuleSerializer,
    )
    def patch(self, request: Request, project: str, rule: uuid.UUID) -> Response:
        place = self.project
        given = self.read(TrustRuleChange)
        if "service_account" in given:
            given["service_account"] = selectors.trustable_account(place, given["service_account"])
        with matched(request, selectors.trust_rule_get(place, rule), _rule_version) as row:
            changed = services.trust_rule_update(rule=row, actor=self.actor, **given)
        return tagged(request, _rule(changed), version=_rule_version(changed))

    @extend_schema(
        summary="Delete a trust rule", description="Tokens that it has given end at once.", responses={204: None}
    )
    def delete(self, request: Request, project: str, rule: uuid.UUID) -> Response:
        with matched(request, selectors.trust_rule_get(self.project, rule), _rule_version) as row:
            services.trust_rule_delete(rule=row, actor=self.actor)
        return Response(status=204)


class OidcExchange(LoginView):
    """A CI job's token of its issuer for a short one of ours."""

    throttle_classes = [ExchangeThrottle]
    refusals = (401,)

    @extend_schema(
        summary="What a CI job must ask its issuer for",
        description="The audience is unique to this installation.",
        responses=ExchangeFacts,
        auth=[],
    )
    def get(self, request: Request) -> Response:
        return Response({"audience": selectors.audience()})

    @extend_schema(
        summary="Exchange a CI job's token",
        description="`assertion` is a JWT that the issuer made for this job, with our audience. It is good for one"
        " exchange. `project` and `rule` choose where several rules fit.",
        request=ExchangeRequest,
        responses={201: ExchangeAnswer},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        given = ExchangeRequest(data=request.data)
        given.is_valid(raise_exception=True)
        facts = facts_of(request._request)
        made = ci_exchange.token_exchange(**given.validated_data, ip=facts.ip, request_id=facts.request_id)
        answer = {
            "token": made.text,
            "expires_at": made.token.expires_at,
            "project": made.rule.project.slug,
            "rule": made.rule.name,
            "service_account": made.rule.service_account.username,
            "scopes": made.token.scopes,
        }
        return Response(ExchangeAnswer(answer).data, status=201)


def _issuer(issuer: Issuer) -> dict[str, Any]:
    return dict(IssuerSerializer(issuer).data)


def _issuer_version(issuer: Issuer) -> dict[str, Any]:
    """What If-Match protects: what people set."""
    return {"id": issuer.id, "max_age_minutes": issuer.max_age_minutes, "is_enabled": issuer.is_enabled}


def _rule(rule: TrustRule) -> dict[str, Any]:
    return dict(TrustRuleSerializer(rule).data)


def _rule_version(rule: TrustRule) -> dict[str, Any]:
    """What If-Match protects: all but when it was used last, which each job changes."""
    return {name: value for name, value in _rule(rule).items() if name != "last_used_at"}
