"""Single accounts: read, change, block; where they sign in; a link for a new password."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.models import SocialAccount
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.accounts import UserSerializer
from console.api.v1.serializers.people import (
    AccessSerializer,
    IdentitySerializer,
    ImpactSerializer,
    PasswordLink,
    SessionsEnd,
    SessionsEnded,
    SessionSerializer,
    UserChange,
)
from console.api.views import ApiView
from console.identity.adapters import password_link
from registry.models import User
from registry.selectors import people as selectors
from registry.selectors.sessions import session_get, sessions_of
from registry.selectors.sso import identity_get
from registry.services import people as services
from registry.services.permissions import require
from registry.services.sessions import session_end, sessions_end
from registry.services.sign_ins import second_factors_reset
from registry.services.sso_sign_in import identity_unlink


class _UserView(ApiView):
    write_scope = "admin"
    asks_again = True
    keeps_answers = False

    def user(self) -> User:
        """Return the account of the address. Raises NotFound for those who may not know it."""
        return selectors.person_get(self.actor, self.kwargs["username"])

    def own_or_managed(self) -> User:
        """Return the account when it is one's own or one administers the site. Raises PermissionDenied."""
        user = self.user()
        if self.actor.user_id != user.id:
            require(self.actor, "site.users")
        return user


def _identity(row: SocialAccount) -> dict[str, Any]:
    return dict(IdentitySerializer(row).data)


def _document(user: User) -> dict[str, Any]:
    return dict(UserSerializer(user).data)


def _version(user: User) -> dict[str, Any]:
    return {name: value for name, value in _document(user).items() if name != "last_login"}


class UserItem(_UserView):
    """One account."""

    @extend_schema(summary="Read an account", responses=UserSerializer)
    def get(self, request: Request, username: str) -> Response:
        user = self.user()
        return tagged(request, _document(user), version=_version(user))

    @extend_schema(
        summary="Change or block an account",
        description="Blocking (`is_active` false) ends sessions, tokens and open live pages at once; see impact. "
        "Tokens of a person are revoked for good, those of a service account work again with it.",
        request=UserChange,
        responses=UserSerializer,
    )
    def patch(self, request: Request, username: str) -> Response:
        with matched(request, self.user(), _version) as user:
            changed = services.user_update(user=user, actor=self.actor, **self.read(UserChange))
        return tagged(request, _document(changed), version=_version(changed))


class UserImpact(_UserView):
    """What blocking stops."""

    @extend_schema(summary="Show what blocking an account would stop", responses=ImpactSerializer)
    def get(self, request: Request, username: str) -> Response:
        user = self.user()
        require(self.actor, "site.users")
        return Response(ImpactSerializer(selectors.user_impact(user)).data)


class UserAccess(_UserView):
    """Roles and ways to sign in."""

    @extend_schema(
        summary="Read where an account has roles and how it signs in",
        description="One's own, or as administrator.",
        responses=AccessSerializer,
    )
    def get(self, request: Request, username: str) -> Response:
        return Response(AccessSerializer(selectors.access_of(self.own_or_managed())).data)


class UserIdentity(_UserView):
    """One of the accounts elsewhere by which somebody signs in."""

    @extend_schema(summary="Read a connected account", responses=IdentitySerializer)
    def get(self, request: Request, username: str, identity: int) -> Response:
        return tagged(request, _identity(identity_get(self.own_or_managed(), identity)))

    @extend_schema(
        summary="Disconnect an account elsewhere, one's own",
        description="Refused when nothing would be left to sign in with.",
        responses={204: None},
    )
    def delete(self, request: Request, username: str, identity: int) -> Response:
        user = self.own_or_managed()
        with matched(request, identity_get(user, identity), _identity) as row:
            identity_unlink(user=user, identity_id=row.pk, actor=self.actor)
        return Response(status=204)


class UserPasswordLink(_UserView):
    """A new password."""

    @extend_schema(
        summary="Make a link for a new password",
        description="It works once, within a day. Whoever has it sets the password.",
        request=None,
        responses={201: PasswordLink},
    )
    def post(self, request: Request, username: str) -> Response:
        key = services.password_link_create(user=self.user(), actor=self.actor)
        return Response({"link": password_link(key)}, status=201)


class UserResetFactors(_UserView):
    """Lost second factors."""

    @extend_schema(summary="Take the second factors away", request=None, responses={204: None})
    def post(self, request: Request, username: str) -> Response:
        second_factors_reset(user=self.user(), actor=self.actor)
        return Response(status=204)


class UserSessions(_UserView):
    """Where an account is signed in."""

    listing = Listing(("ip",), order=("-created_at",))

    @extend_schema(summary="List sessions, one's own or as administrator", responses=paged(SessionSerializer))
    def get(self, request: Request, username: str) -> Response:
        return self.page(sessions_of(self.own_or_managed()), SessionSerializer)


class UserSessionsEnd(_UserView):
    """Signing out from afar."""

    @extend_schema(summary="End one session or all", request=SessionsEnd, responses=SessionsEnded)
    def post(self, request: Request, username: str) -> Response:
        user, wanted = self.own_or_managed(), self.read(SessionsEnd)["id"]
        if wanted is None:
            return Response({"ended": sessions_end(user=user, actor=self.actor)})
        session_end(session=session_get(self.actor, user, wanted), actor=self.actor)
        return Response({"ended": 1})
