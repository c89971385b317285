"""Settings: webhooks of the current project and of the site, and what was delivered."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.web import equivalents
from console.web.forms.editing import seen_text
from console.web.forms.webhooks import NewWebhookForm, WebhookChangeForm, webhook_facts
from console.web.fragments import DELIVERIES_SHOWN, webhook_context
from console.web.keyset import keyset_page
from console.web.page import actor_of, add_errors, frame_of, page, permissions, render_page
from console.web.undo import done
from registry.domain.webhooks import PROJECT_EVENTS, SITE_EVENTS, message_id
from registry.errors import NotFound, RegistryError
from registry.models import Webhook
from registry.selectors import webhooks as selectors
from registry.services import webhooks as services
from registry.services.locking import held


@sensitive_post_parameters("url")
@require_http_methods(["GET", "POST"])
@page
def webhook_list(request: HttpRequest) -> HttpResponse:
    """Webhooks of the current project and of the site; make one. Its secret is shown once, in the answer."""
    actor = actor_of(request)
    project = frame_of(request, None, "settings").project
    form = NewWebhookForm(request.POST or None)
    secret, made = "", None
    if request.method == "POST" and form.is_valid():
        given = dict(form.cleaned_data)
        place = None if given.pop("of_site") else project
        try:
            made, secret = services.webhook_create(project=place, actor=actor, **given)
        except RegistryError as error:
            add_errors(form, error)
        else:
            form = NewWebhookForm()
    allowed = permissions(actor, None, "site.webhooks")
    if project is not None:
        allowed |= permissions(actor, project, "project.webhooks")
    example = {
        "project": project.slug if project else None,
        "name": "chat",
        "url": "https://chat.example.com/hooks/models",
        "events": ["*"],
        "format": "standard",
    }
    context = {
        "section": "webhooks",
        "form": form,
        "made": made,
        "secret": secret,
        "webhooks": [
            hook for hook in selectors.webhooks_visible_to(actor) if hook.project is None or hook.project == project
        ],
        "known": [(_("Project"), PROJECT_EVENTS.values()), (_("Site"), SITE_EVENTS.values())],
        "curl": equivalents.curl("POST", "webhooks/", example),
        **allowed,
    }
    status = 422 if form.is_bound else 200
    response = render_page(request, "web/settings/webhooks.html", context, current="settings", status=status)
    if secret:
        response["Cache-Control"] = "no-store"
    return response


@sensitive_post_parameters("url")
@require_http_methods(["GET", "POST"])
@page
def webhook(request: HttpRequest, webhook_id: uuid.UUID) -> HttpResponse:
    """One webhook: change it, and see what was delivered."""
    actor = actor_of(request)
    hook = selectors.webhook_get(actor, webhook_id)
    form = WebhookChangeForm(request.POST or None, webhook=hook)
    if request.method == "POST" and form.is_valid():
        try:
            with held(hook) as now:
                is_saved = form.is_current(webhook_facts(now))
                if is_saved:
                    services.webhook_update(webhook=now, actor=actor, **form.changes())
        except RegistryError as error:
            add_errors(form, error)
        else:
            if is_saved:
                messages.success(request, _("Saved."))
                return redirect("web:webhook", hook.pk)
    return _webhook_page(request, hook, form)


def _webhook_page(request: HttpRequest, hook: Webhook, form: WebhookChangeForm, secret: str = "") -> HttpResponse:
    shown = keyset_page(request, selectors.deliveries_of(hook), DELIVERIES_SHOWN)
    context = {
        "section": "webhooks",
        **webhook_context(hook, shown.object_list),
        "form": form,
        "seen": seen_text(webhook_facts(hook)),
        "secret": secret,
        "page": shown,
        "curl": equivalents.curl("POST", f"webhooks/{hook.pk}/test"),
    }
    topics = [f"webhook:{hook.pk}"] if shown.newer is None else []
    status = 422 if form.is_bound else 200
    response = render_page(
        request, "web/settings/webhook.html", context, current="settings", topics=topics, status=status
    )
    if secret:
        response["Cache-Control"] = "no-store"
    return response


@require_GET
@page
def delivery(request: HttpRequest, webhook_id: uuid.UUID, delivery_id: uuid.UUID) -> HttpResponse:
    """One delivery: what is sent, and every attempt."""
    hook = selectors.webhook_get(actor_of(request), webhook_id)
    row = selectors.delivery_get(hook, delivery_id)
    context = {
        "section": "webhooks",
        "webhook": hook,
        "delivery": row,
        "message_id": message_id(row.event_id),
        "attempts": list(selectors.attempts_of(row)),
    }
    return render_page(request, "web/settings/webhook_delivery.html", context, current="settings")


@require_POST
@page
def webhook_act(request: HttpRequest, webhook_id: uuid.UUID) -> HttpResponse:
    """Test it, switch it on or off, renew its secret, delete it, or deliver something again."""
    actor = actor_of(request)
    hook = selectors.webhook_get(actor, webhook_id)
    match request.POST.get("act", ""):
        case "test":
            services.webhook_test(webhook=hook, actor=actor)
            messages.success(request, _("A test event is on its way."))
        case "on" | "off" as wanted:
            services.webhook_update(webhook=hook, is_enabled=wanted == "on", actor=actor)
            said = _("It is switched on.") if wanted == "on" else _("It is switched off.")
            done(request, said, request.path, act="off" if wanted == "on" else "on")
        case "rotate":
            secret = services.webhook_rotate_secret(webhook=hook, actor=actor)
            hook.refresh_from_db()
            return _webhook_page(request, hook, WebhookChangeForm(webhook=hook), secret)
        case "delete":
            with held(hook) as now:
                if request.POST.get("seen") != seen_text(webhook_facts(now)):
                    messages.warning(request, _("Somebody changed the webhook meanwhile; look at it again."))
                    return redirect("web:webhook", hook.pk)
                services.webhook_delete(webhook=now, actor=actor)
            messages.success(request, _("The webhook is deleted."))
            return redirect("web:webhooks")
        case "replay":
            row = selectors.delivery_get(hook, request.POST.get("delivery", ""))
            services.delivery_replay(delivery=row, actor=actor)
            messages.success(request, _("It is delivered again."))
        case _:
            raise NotFound(_("There is no such action."))
    return redirect("web:webhook", hook.pk)
