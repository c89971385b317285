"""Sign-in of command lines: the two calls that need no token."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.v1.serializers.login_requests import LoginAsk, LoginAsked, LoginClaim, LoginClaimed, LoginWaiting
from console.api.views import AlwaysJson
from console.identity.attempts import AskThrottle, ClaimThrottle
from console.middleware.request_context import facts_of
from registry.domain.login_codes import POLL_SECONDS
from registry.services import login_requests as services


class LoginView(APIView):
    """Base: anybody may call, so often."""

    authentication_classes: list[type[BaseAuthentication]] = []
    permission_classes: list[type[BasePermission]] = [AllowAny]
    content_negotiation_class = AlwaysJson

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Let nobody on the way keep a secret."""
        response.headers.setdefault("Cache-Control", "no-store")
        return super().finalize_response(request, response, *args, **kwargs)


class LoginRequestList(LoginView):
    """Begin."""

    throttle_classes = [AskThrottle]

    @extend_schema(
        summary="Begin the sign-in of a command line",
        description="Show ``user_code`` and ``verification_url`` to a person; fetch the token with ``secret``.",
        request=LoginAsk,
        responses={201: LoginAsked},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        given = LoginAsk(data=request.data)
        given.is_valid(raise_exception=True)
        row, secret = services.login_ask(**given.validated_data, ip=facts_of(request._request).ip)
        address = f"{settings.PUBLIC_URL.rstrip('/')}{reverse('web:connect')}"
        document = {
            "user_code": row.user_code,
            "verification_url": address,
            "verification_url_complete": f"{address}?code={row.user_code}",
            "secret": secret,
            "expires_at": row.expires_at,
            "interval_seconds": POLL_SECONDS,
        }
        return Response(LoginAsked(document).data, status=201)


class LoginRequestClaim(LoginView):
    """End."""

    throttle_classes = [ClaimThrottle]

    @extend_schema(
        summary="Fetch the token of a confirmed sign-in",
        description="202: nobody has decided yet; ask again after ``interval_seconds``. The token is given once.",
        request=LoginClaim,
        responses={200: LoginClaimed, 202: LoginWaiting},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        given = LoginClaim(data=request.data)
        given.is_valid(raise_exception=True)
        facts = facts_of(request._request)
        found = services.login_claim(secret=given.validated_data["secret"], ip=facts.ip, request_id=facts.request_id)
        if found is None:
            return Response({"state": "waiting", "interval_seconds": POLL_SECONDS}, status=202)
        token, text = found
        document = {
            "token": text,
            "username": token.owner.username,
            "scopes": token.scopes,
            "project": token.project.slug if token.project else None,
            "expires_at": token.expires_at,
        }
        return Response(LoginClaimed(document).data)
