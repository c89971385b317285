"""Single sign-on: the way there and back, and the pages on which administrators set it up."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from requests import RequestException

from console.identity.reauthentication import sensitive
from console.identity.sso import FlotillaOidc, callback_address, sign_in_failed_at
from console.web import equivalents
from console.web.forms import sso as forms
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.errors import NotFound, RegistryError
from registry.models import SsoProvider
from registry.selectors import sso as selectors
from registry.services import scim_tokens as scim_services
from registry.services import sso as services

# The page shows so many groups that a provider keeps; the API lists all.
MOST_GROUPS = 200


def leaving(request: HttpRequest, url: str) -> HttpResponse:
    """Return a page that leads elsewhere. A redirect after a form would be stopped by our policy for forms."""
    context = {"url": url, "host": urlsplit(url).hostname}
    answer = render(request, "web/entrance/leaving.html", context)
    answer.headers["Refresh"] = f"0; url={url}"
    answer.headers["Cache-Control"] = "no-store"
    return answer


@require_POST
def sso_start(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Go to the provider: to sign in, or (``process=connect``, signed in) to connect one's account."""
    _known(provider_id)
    wanted = request.POST.get("process", "login")
    if wanted not in {"login", "connect"} or request.GET:
        raise Http404
    if wanted == "connect" and not request.user.is_authenticated:
        return redirect("account_login")
    answer = _guarded(request, provider_id, OAuth2LoginView)
    return leaving(request, answer.headers["Location"]) if answer.status_code == 302 else answer


@require_GET
def sso_callback(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Come back from the provider."""
    _known(provider_id)
    return _guarded(request, provider_id, OAuth2CallbackView)


@require_GET
def sso_cancelled(request: HttpRequest) -> HttpResponse:
    """Somebody changed their mind at the provider."""
    return redirect("account_login")


def _known(provider_id: str) -> None:
    if not selectors.providers_offered().filter(slug=provider_id).exists():
        raise Http404


def _guarded(request: HttpRequest, provider_id: str, view: Any) -> HttpResponseBase:
    """Run a view of the library; what a provider answers that makes no sense is a page, not an error of ours."""
    try:
        answer: HttpResponseBase = view.adapter_view(FlotillaOidc(request, provider_id))(request)
    except (RequestException, OAuth2Error, ValueError, KeyError, TypeError, AttributeError) as error:
        return sign_in_failed_at(request, provider_id, error)
    return answer


@sensitive_post_parameters("client_secret")
@require_http_methods(["GET", "POST"])
@page
@sensitive(keeps_input=False)
def providers(request: HttpRequest) -> HttpResponse:
    """Providers of single sign-on; add one."""
    actor = actor_of(request)
    form = forms.NewProviderForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.sso_provider_create(actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("%(name)s is added.") % {"name": made.name})
            return redirect("web:sso-provider", made.slug)
    example = {
        "slug": "okta",
        "name": "Okta",
        "issuer": "https://acme.okta.com",
        "client_id": "0oa1flotilla",
        "client_secret": "…",
    }
    context = {
        "section": "sso",
        "form": form,
        "providers": list(selectors.providers_managed_by(actor)),
        "callback": callback_address("short-name"),
        "curl": equivalents.curl("POST", "sso-providers/", example),
        **permissions(actor, None, "site.users"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/settings/sso.html", context, current="settings", status=status)


@sensitive_post_parameters("client_secret")
@require_http_methods(["GET", "POST"])
@page
@sensitive(keeps_input=False)
def provider(request: HttpRequest, slug: str) -> HttpResponse:
    """One provider: change it, and say what its groups give."""
    actor = actor_of(request)
    row = selectors.provider_get(actor, slug)
    posted = request.POST.get("form") if request.method == "POST" else None
    change = forms.ProviderChangeForm(request.POST if posted == "change" else None, provider=row)
    mapping = forms.MappingForm(request.POST if posted == "mapping" else None)
    form: Any = change if posted == "change" else mapping
    if posted in {"change", "mapping"} and form.is_valid():
        try:
            if posted == "change":
                services.sso_provider_update(provider=row, actor=actor, **change.changes())
            else:
                services.group_mapping_create(provider=row, actor=actor, **mapping.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Saved."))
            return redirect("web:sso-provider", slug)
    return _provider_page(request, row, change, mapping, 422 if posted else 200)


def _provider_page(request: HttpRequest, row: SsoProvider, change: Any, mapping: Any, status: int) -> HttpResponse:
    body = {"group": "ml-team", "project": "default", "role": "publisher"}
    context = {
        "section": "sso",
        "provider": row,
        "form": change,
        "mapping": mapping,
        "mappings": list(selectors.mappings_of(row)),
        "groups": list(selectors.scim_groups_of(row)[:MOST_GROUPS]),
        "links": SocialAccount.objects.filter(provider=row.slug).count(),
        "callback": callback_address(row.slug),
        "curl": equivalents.curl("POST", f"sso-providers/{row.slug}/mappings/", body),
    }
    return render_page(request, "web/settings/sso_provider.html", context, current="settings", status=status)


@require_POST
@page
@sensitive()
def provider_act(request: HttpRequest, slug: str) -> HttpResponse:
    """Switch a provider on or off, delete it, or remove a mapping."""
    actor = actor_of(request)
    row = selectors.provider_get(actor, slug)
    match request.POST.get("act", ""):
        case "on" | "off" as wanted:
            services.sso_provider_update(provider=row, is_enabled=wanted == "on", actor=actor)
            messages.success(request, _("It is switched on.") if wanted == "on" else _("It is switched off."))
        case "unmap":
            mapping = selectors.mapping_get(row, request.POST.get("mapping", ""))
            services.group_mapping_delete(mapping=mapping, actor=actor)
            messages.success(request, _("The mapping is removed."))
        case "delete":
            services.sso_provider_delete(provider=row, actor=actor)
            messages.success(request, _("The provider is deleted."))
            return redirect("web:sso")
        case _:
            raise NotFound(_("There is no such action."))
    return redirect("web:sso-provider", slug)


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def scim_tokens(request: HttpRequest) -> HttpResponse:
    """Tokens with which another system keeps accounts (SCIM). A new one is shown once."""
    actor = actor_of(request)
    secret = ""
    form = forms.ScimTokenForm(request.POST if "name" in request.POST else None)
    if request.method == "POST" and "revoke" in request.POST:
        token = selectors.scim_token_get(actor, request.POST["revoke"])
        scim_services.scim_token_revoke(token=token, actor=actor)
        messages.success(request, _("The token is revoked."))
        return redirect("web:scim-tokens")
    if form.is_bound and form.is_valid():
        try:
            _token, secret = scim_services.scim_token_create(actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            form = forms.ScimTokenForm()
    context = {
        "section": "sso",
        "form": form,
        "secret": secret,
        "tokens": list(selectors.scim_tokens_of(actor)),
        "address": f"{settings.PUBLIC_URL}/scim/v2",
        "curl": equivalents.curl("POST", "scim-tokens/", {"name": "okta"}),
        **permissions(actor, None, "site.users"),
    }
    status = 422 if form.is_bound else 200
    response = render_page(request, "web/settings/scim_tokens.html", context, current="settings", status=status)
    if secret:
        response["Cache-Control"] = "no-store"
    return response
