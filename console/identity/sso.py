"""Single sign-on inside django-allauth: our table of providers, our checks of what they say, our rules for accounts."""

from __future__ import annotations

import logging
from typing import Any

import jwt
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from console.identity.outside_http import outside_session
from console.middleware.request_context import facts_of
from registry.errors import RegistryError
from registry.models import SsoProvider
from registry.selectors.sso import providers_offered
from registry.services.sealing import unseal
from registry.services.sign_ins import sign_in_failed
from registry.services.sso_sign_in import account_of_subject, claimed_groups, groups_apply, sso_sign_up

log = logging.getLogger(__name__)

END_SESSION = "sso_end_session"
# Signed with a private key of the issuer; never with a secret that is shared.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
CLOCK_SKEW_SECONDS = 60


def callback_address(slug: str) -> str:
    """Return the redirect address that the provider must know."""
    return settings.PUBLIC_URL + reverse("openid_connect_callback", kwargs={"provider_id": slug})


class FlotillaOidc(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """OpenID Connect as the specification wants it: the issuer's own documents, and a signed identity token."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """Return the provider's description. Raises OAuth2Error when it is another issuer's."""
        if not hasattr(self, "_openid_config"):
            config: Any = super().openid_config
            if not isinstance(config, dict) or config.get("issuer") != self.get_provider().app.settings["issuer"]:
                del self._openid_config
                raise OAuth2Error("The description names another issuer")
        return dict(self._openid_config)

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        """Return who signed in. Raises OAuth2Error without an identity token, or when two accounts are mixed."""
        signed = kwargs["response"].get("id_token")
        if not signed:
            raise OAuth2Error("There is no identity token")
        claims = self._decode_id_token(app, signed)
        asked = self._fetch_user_info(token.token) if "userinfo_endpoint" in self.openid_config else claims
        if asked.get("sub") != claims["sub"]:
            raise OAuth2Error("The answers are about two accounts")
        login = self.get_provider().sociallogin_from_response(request, {"userinfo": {**asked, **claims}})
        end_session = self.openid_config.get("end_session_endpoint")
        if isinstance(end_session, str) and end_session.startswith(("https://", "http://")):
            request.session[END_SESSION] = f"{end_session}?{urlencode({'client_id': app.client_id})}"
        return login

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        """Return the claims of a token that the issuer signed for us and that has not run out."""
        with outside_session() as session:
            answer = session.get(self.openid_config["jwks_uri"])
            answer.raise_for_status()
        try:
            keys = jwt.PyJWKSet.from_dict(answer.json()).keys
            wanted = jwt.get_unverified_header(id_token).get("kid")
            key = next((one for one in keys if one.key_id == wanted or len(keys) == 1), None)
            if key is None:
                raise OAuth2Error("The identity token is signed by an unknown key")
            claims: dict[str, Any] = jwt.decode(
                id_token,
                key,
                algorithms=ALGORITHMS,
                issuer=self.openid_config["issuer"],
                audience=app.client_id,
                leeway=CLOCK_SKEW_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, AttributeError) as error:
            raise OAuth2Error(f"The identity token is not acceptable: {error}") from error
        return claims

    def get_callback_url(self, request: HttpRequest, app: Any) -> str:
        """Return our public address, whatever the request's host says."""
        return callback_address(self.provider_id)


# The library makes the first half of a sign-in by the class that its provider names.
OpenIDConnectProvider.oauth2_adapter_class = FlotillaOidc


class SsoAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Providers of our table; accounts linked by issuer and subject, never by an e-mail address."""

    def list_apps(self, request: HttpRequest, provider: str | None = None, client_id: str | None = None) -> list[Any]:
        """Return the enabled providers as the library wants them."""
        rows = providers_offered()
        if provider and provider != "openid_connect":
            rows = rows.filter(slug=provider)
        return [_app(row) for row in rows if not client_id or row.client_id == client_id]

    def get_requests_session(self) -> Any:
        """Return a session that calls no private address."""
        return outside_session()

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Accounts are made in pre_social_login, or not at all."""
        return False

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: Any) -> str:
        """Return the page where one connects."""
        return reverse("mfa_index")

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Make the account of a newcomer, and give the roles that groups mean."""
        provider = SsoProvider.objects.get(slug=sociallogin.account.provider)
        said = sociallogin.account.extra_data
        claims, groups = said.get("userinfo", {}), claimed_groups(said, provider)
        if sociallogin.state.get("process") == "connect":
            return
        try:
            if not sociallogin.is_existing:
                user = account_of_subject(provider=provider, subject=sociallogin.account.uid) or sso_sign_up(
                    provider=provider, claims=claims, groups=groups
                )
                sociallogin.connect(request, user)
            groups_apply(user=sociallogin.user, provider=provider, groups=groups)
        except RegistryError as error:
            raise ImmediateHttpResponse(_refused(request, provider.slug, error.message, 403)) from error
        # Roles were written to the row.
        sociallogin.user.refresh_from_db()

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Say that it did not work; the reason is in the log."""
        raise ImmediateHttpResponse(sign_in_failed_at(request, provider.sub_id, exception or error))


def _app(row: SsoProvider) -> Any:
    app = SocialApp(provider="openid_connect", provider_id=row.slug, name=row.name, client_id=row.client_id)
    app.secret = unseal(row.secret_sealed)
    app.settings = {
        "server_url": row.issuer.rstrip("/"),
        "issuer": row.issuer,
        "uid_field": row.subject_claim,
        "oauth_pkce_enabled": True,
        "scope": row.scopes.split(),
    }
    return app


def sign_in_failed_at(request: HttpRequest, slug: str, reason: Any) -> HttpResponse:
    """Return the page that says that it did not work, and log why."""
    name = SsoProvider.objects.filter(slug=slug).values_list("name", flat=True).first() or slug
    sentence = _(
        "Signing in with %(name)s did not work. Try again; if it stays so, the console's log tells its operator why."
    )
    return _refused(request, slug, sentence % {"name": name}, 401, reason)


def _refused(request: HttpRequest, slug: str, sentence: str, status: int, reason: Any = None) -> HttpResponse:
    facts = facts_of(request)
    log.warning("sso.refused provider=%s reason=%s", slug, reason or sentence)
    sign_in_failed(username="", method="sso", ip=facts.ip, request_id=facts.request_id)
    return render(request, "web/entrance/notice.html", {"sentence": sentence}, status=status)
