"""Whatever a page can do, the API can do: a row for each write of the console, read from its addresses.

A page that writes something new needs a row here, and the address of the API that does the same.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from console.api.v1.urls import urlpatterns as api_patterns
from console.web import sign_in_urls
from console.web import urls as web_urls

_MODEL = "projects/<slug:project>/models/<str:model>/"
_VERSION = f"{_MODEL}versions/<str:version>/"
_DEPLOYMENT = "projects/<slug:project>/deployments/<uuid:deployment>/"
_ROLLOUT = "post rollouts/<uuid:rollout>/"
_MEMBERS = "projects/<slug:project>/members/"
_USER = "users/<str:username>/"
_KEY = "api-keys/<uuid:token>/"
_ACCOUNT = "service-accounts/<str:account>/"
_SSO = "sso-providers/<slug:slug>/"
_HOOK = "webhooks/<uuid:webhook>/"
_RULES = "projects/<slug:project>/trust-rules/"

# Page, with the act that its form names -> what does the same.
WRITES: dict[str, tuple[str, ...]] = {
    "model-new": ("post projects/<slug:project>/models/",),
    "model-edit": (f"patch {_MODEL}",),
    "model-act archive": (f"post {_MODEL}archive",),
    "model-act restore": (f"post {_MODEL}restore",),
    "model-act delete": (f"delete {_MODEL}",),
    "model-card-edit": (f"put {_MODEL}card/",),
    "model-samples": (f"put {_MODEL}samples/",),
    "version-samples": (f"put {_VERSION}samples/",),
    "model-aliases": (f"put {_MODEL}aliases/<str:alias>/",),
    "alias-delete": (f"delete {_MODEL}aliases/<str:alias>/",),
    "upload-start": (f"post {_MODEL}versions/",),
    "upload-fetch": (f"post {_VERSION}fetch",),
    "upload-attach": (f"post {_VERSION}files/",),
    "upload-submit": (f"post {_VERSION}submit",),
    "version-annotate": (f"patch {_VERSION}",),
    "version-act archive": (f"post {_VERSION}archive",),
    "version-act restore": (f"post {_VERSION}restore",),
    "version-act abandon": (f"post {_VERSION}abandon",),
    "version-act recheck": (f"post {_VERSION}checks/<slug:kind>/rerun",),
    "measurements": (f"post {_VERSION}measurements/",),
    "config-new": (f"post {_MODEL}configs/",),
    "config-check": (f"post {_MODEL}configs/validate",),
    "config-revert": (f"post {_MODEL}configs/<int:number>/revert",),
    "config-copy": (f"post {_MODEL}configs/copy",),
    "deploy": ("post projects/<slug:project>/deployments/",),
    "deploy-plan": ("post projects/<slug:project>/deployments/plan",),
    "traffic-plan": (f"post {_DEPLOYMENT}plan",),
    "traffic": (f"post {_DEPLOYMENT}routes",),
    "rollback": (f"post {_DEPLOYMENT}rollback",),
    "apply-set-forget": ("delete projects/<slug:project>/apply-sets/<str:name>/",),
    **{f"rollout-steer {act}": (f"{_ROLLOUT}{act}",) for act in ("pause", "resume", "abort", "retry")},
    "try-run": (f"post {_DEPLOYMENT}infer",),
    "deployment-logs": (f"post {_DEPLOYMENT}logs",),
    "approval-review": ("post approvals/<uuid:approval>/reviews/",),
    "approval-bypass": ("post approvals/<uuid:approval>/bypass",),
    "approval-withdraw": ("post approvals/<uuid:approval>/withdraw",),
    "fleet-join": ("post join-tokens/",),
    "node-logs": ("post nodes/<uuid:node>/logs",),
    **{f"node-act {act}": (f"post nodes/<uuid:node>/{act}",) for act in ("cordon", "uncordon", "drain", "retire")},
    "members": (f"post {_MEMBERS}", "post users/"),
    "member-remove": (f"delete {_MEMBERS}<str:username>/",),
    "tokens": ("post api-keys/",),
    "token": (f"patch {_KEY}",),
    "token-rotate": (f"post {_KEY}rotate",),
    "token-revoke": (f"delete {_KEY}",),
    "service-accounts": ("post service-accounts/",),
    "service-account": (f"post {_MEMBERS}", "post api-keys/"),
    "service-account-act disable": (f"post {_ACCOUNT}disable",),
    "service-account-act enable": (f"post {_ACCOUNT}enable",),
    "service-account-act delete": (f"delete {_ACCOUNT}",),
    "signing": ("patch projects/<slug:project>/policies/", "post projects/<slug:project>/signing-keys/"),
    "code-withdraw-all": ("post projects/<slug:project>/code-permissions/withdraw",),
    "version-code": (f"post {_VERSION}code/withdraw", f"post {_VERSION}code/permit"),
    "signing-key-remove": ("delete projects/<slug:project>/signing-keys/<uuid:key>/",),
    "signing-identity-remove": ("delete projects/<slug:project>/signing-identities/<uuid:signer>/",),
    "trust": (f"post {_RULES}",),
    "trust-rule": (f"patch {_RULES}<uuid:rule>/",),
    "trust-rule-delete": (f"delete {_RULES}<uuid:rule>/",),
    "issuers": ("post issuers/",),
    "issuer-act read": ("post issuers/<slug:issuer>/read-keys",),
    "issuer-act disable": ("patch issuers/<slug:issuer>/",),
    "issuer-act enable": ("patch issuers/<slug:issuer>/",),
    "issuer-act delete": ("delete issuers/<slug:issuer>/",),
    "environments": ("post environments/", "post fleets/"),
    "environment": ("patch environments/<slug:slug>/",),
    "environment-delete": ("delete environments/<slug:slug>/",),
    "fleet-settings": ("patch fleets/<slug:slug>/",),
    "fleet-delete": ("delete fleets/<slug:slug>/",),
    "projects": ("post projects/", "patch projects/<slug:project>/policies/"),
    "policies": ("patch projects/<slug:project>/policies/",),
    "project": ("patch projects/<slug:project>/quotas/", "patch projects/<slug:project>/"),
    "webhooks": ("post webhooks/",),
    "webhook": (f"patch {_HOOK}",),
    "webhook-act test": (f"post {_HOOK}test",),
    "webhook-act on": (f"patch {_HOOK}",),
    "webhook-act off": (f"patch {_HOOK}",),
    "webhook-act rotate": (f"post {_HOOK}rotate-secret",),
    "webhook-act delete": (f"delete {_HOOK}",),
    "webhook-act replay": (f"post {_HOOK}deliveries/<uuid:delivery>/replay",),
    "identity-unlink": (f"delete {_USER}identities/<int:identity>/",),
    "session-end": (f"post {_USER}sessions/end",),
    "person": (f"patch {_USER}",),
    "person-act block": (f"patch {_USER}",),
    "person-act let-in": (f"patch {_USER}",),
    "person-act password-link": (f"post {_USER}password-link",),
    "person-act reset-factors": (f"post {_USER}reset-second-factors",),
    "person-act end-sessions": (f"post {_USER}sessions/end",),
    "person-act end-session": (f"post {_USER}sessions/end",),
    "sso": ("post sso-providers/",),
    "scim-tokens": ("post scim-tokens/", "delete scim-tokens/<uuid:scim_token>/"),
    "sso-provider": (f"patch {_SSO}", f"post {_SSO}mappings/"),
    "sso-provider-act on": (f"patch {_SSO}",),
    "sso-provider-act off": (f"patch {_SSO}",),
    "sso-provider-act unmap": (f"delete {_SSO}mappings/<uuid:mapping>/",),
    "sso-provider-act delete": (f"delete {_SSO}",),
    "operation-cancel": ("post operations/<uuid:operation>/cancel",),
}
# Pages of this kind change nothing: they show what a form would do before it is sent.
PREVIEWS = {"model-card-preview", "alias-preview"}
# A program never does these: they need the person, in a browser.
FOR_PEOPLE_ONLY = {
    "connect",  # a person lets a program in
    "password",
    "account_login",
    "account_logout",
    "account_reauthenticate",
    "account_reset_password",
    "account_reset_password_from_key",
    "mfa_authenticate",
    "mfa_login_webauthn",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
    "mfa_activate_totp",
    "mfa_deactivate_totp",
    "mfa_add_webauthn",
    "mfa_remove_webauthn",
    "mfa_generate_recovery_codes",
    "openid_connect_login",
}


def layers(view: Callable[..., Any] | None) -> Iterator[Callable[..., Any]]:
    """Yield a view and what its decorators wrap."""
    while view is not None:
        yield view
        view = getattr(view, "__wrapped__", None)


def takes_post(view: Callable[..., Any]) -> bool:
    """Say whether a view takes POST: by its class, or by the methods that its decorator requires."""
    for layer in layers(view):
        if hasattr(layer, "view_class"):
            return hasattr(layer.view_class, "post")
        methods = inspect.getclosurevars(layer).nonlocals.get("request_method_list")
        if methods:
            return "POST" in methods
    raise AssertionError(f"{view} does not say which methods it takes.")


def acts(view: Callable[..., Any]) -> list[str]:
    """Return the acts among which a view chooses by ``match``, as its source says."""
    tree = ast.parse(textwrap.dedent(inspect.getsource([*layers(view)][-1])))
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.MatchValue)]
    return [str(value.value) for value in values if isinstance(value, ast.Constant)]


def written() -> Iterator[str]:
    """Yield each write of the console."""
    for pattern in (*web_urls.urlpatterns, *sign_in_urls.urlpatterns):
        view = pattern.callback
        if not takes_post(view):
            continue
        chosen = [] if hasattr(view, "view_class") else acts(view)
        yield from (f"{pattern.name} {act}" for act in chosen) if chosen else [str(pattern.name)]


def test_every_write_of_the_console_is_known_and_no_row_is_stale() -> None:
    known = set(WRITES) | PREVIEWS | FOR_PEOPLE_ONLY
    found = set(written())
    assert found - known == set(), "Give these an address of the API and a row here."
    assert known - found == set(), "The console has these no longer."


@pytest.mark.parametrize("page", sorted(WRITES))
def test_the_api_does_it_too(page: str) -> None:
    views = {str(pattern.pattern): getattr(pattern.callback, "view_class", None) for pattern in api_patterns}
    for row in WRITES[page]:
        method, _space, route = row.partition(" ")
        assert hasattr(views[route], method), f"{row} is what the page {page} stands for"
