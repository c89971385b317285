"""Settings of a project: whether versions must be signed, and by whom."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.identity.reauthentication import sensitive
from console.web import equivalents
from console.web.forms.signing import (
    CertificateIdentityForm,
    KeylessIdentityForm,
    SigningKeyForm,
    SigningPolicyForm,
)
from console.web.forms.styling import StyledForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.domain.actors import Actor
from registry.errors import RegistryError
from registry.models import Project
from registry.selectors import signing as selectors
from registry.selectors.accounts import project_get
from registry.services import signing as services
from registry.services import signing_identities
from registry.services.locking import held

_TRUSTED: dict[str, type[StyledForm]] = {
    "key": SigningKeyForm,
    "certificate": CertificateIdentityForm,
    "keyless": KeylessIdentityForm,
}


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def signing(request: HttpRequest, project: str) -> HttpResponse:
    """The policy, the trusted keys and identities with what each has signed, and forms for others."""
    actor = actor_of(request)
    room = project_get(actor, project)
    which = request.POST.get("form", "") if request.method == "POST" else ""
    policy = SigningPolicyForm(request.POST if which == "policy" else None, now={"signing_policy": room.signing_policy})
    forms: dict[str, StyledForm] = {
        which_one: form(request.POST if which == which_one else None) for which_one, form in _TRUSTED.items()
    }
    if (which == "policy" and _save_policy(room, policy, actor)) or (
        which in forms and _trust(room, which, forms[which], actor)
    ):
        messages.success(request, _("The policy is saved.") if which == "policy" else _("The signer is trusted now."))
        return redirect("web:signing", room.slug)
    room.refresh_from_db()
    verified = selectors.verified_by(room)
    named = {
        "name": "ci",
        "identity": "https://github.com/acme/models/.github/workflows/release.yml@refs/tags/*",
        "issuer": "https://token.actions.githubusercontent.com",
    }
    body = {"name": "release", "public_key": "-----BEGIN PUBLIC KEY-----\n..."}
    context = {
        "section": "projects",
        "project": room,
        "policy_form": policy,
        "forms": forms,
        "identities": [(one, verified.get(str(one.pk), 0)) for one in selectors.signing_identities(room)],
        "keys": [(one, verified.get(one.fingerprint, 0)) for one in selectors.signing_keys(room)],
        "curl": equivalents.curl("PATCH", f"projects/{room.slug}/policies/", {"signing_policy": room.signing_policy}),
        "identity_curl": equivalents.curl("POST", f"projects/{room.slug}/signing-identities/", named),
        "key_curl": equivalents.curl("POST", f"projects/{room.slug}/signing-keys/", body),
        **permissions(actor, room, "project.policy"),
    }
    return render_page(
        request,
        "web/settings/signing.html",
        context,
        project=room,
        current="settings",
        topics=[f"project:{room.pk}"],
        status=422 if which else 200,
    )


@require_POST
@page
@sensitive()
def key_remove(request: HttpRequest, project: str, key_id: uuid.UUID) -> HttpResponse:
    """Trust a key no longer."""
    actor = actor_of(request)
    key = selectors.signing_key_get(project_get(actor, project), key_id)
    services.signing_key_remove(key=key, actor=actor)
    messages.success(request, _("The key “%(name)s” is trusted no longer.") % {"name": key.name})
    return redirect("web:signing", project)


@require_POST
@page
@sensitive()
def identity_remove(request: HttpRequest, project: str, identity_id: uuid.UUID) -> HttpResponse:
    """Trust an identity no longer."""
    actor = actor_of(request)
    identity = selectors.signing_identity_get(project_get(actor, project), identity_id)
    signing_identities.signing_identity_remove(identity=identity, actor=actor)
    messages.success(request, _("The identity “%(name)s” is trusted no longer.") % {"name": identity.name})
    return redirect("web:signing", project)


def _save_policy(room: Project, form: SigningPolicyForm, actor: Actor) -> bool:
    if not form.is_valid():
        return False
    try:
        with held(room) as now:
            if not form.is_current({"signing_policy": now.signing_policy}):
                return False
            services.signing_policy_set(project=now, policy=form.cleaned_data["signing_policy"], actor=actor)
    except RegistryError as error:
        add_errors(form, error)
        return False
    return True


def _trust(room: Project, which: str, form: StyledForm, actor: Actor) -> bool:
    if not form.is_valid():
        return False
    add = services.signing_key_add if which == "key" else signing_identities.signing_identity_add
    try:
        add(project=room, actor=actor, **form.cleaned_data)
    except RegistryError as error:
        add_errors(form, error)
        return False
    return True
