"""The audit trail."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console.web.page import actor_of, page, render_page
from registry.selectors import audit as selectors

PAGE_SIZE = 50


@require_GET
@page
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what, newest first; filters are in the address."""
    rows = selectors.audit_visible_to(actor_of(request))
    search, action = request.GET.get("q", "").strip(), request.GET.get("action", "").strip()
    if search:
        rows = rows.filter(
            Q(actor_name__icontains=search) | Q(object_label__icontains=search) | Q(action__icontains=search)
        )
    if action:
        rows = rows.filter(action=action)
    context = {
        "page": Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page")),
        "search": search,
        "action": action,
    }
    return render_page(request, "web/audit.html", context, current="audit")
