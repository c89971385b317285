"""The audit trail."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console.web import equivalents
from console.web.keyset import keyset_page
from console.web.page import actor_of, page, render_page
from registry.selectors import audit as selectors

PAGE_SIZE = 50
# Filters of the address, as the API's list and export take them.
FILTERS = ("action", "actor_name", "object_id")


@require_GET
@page
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what, newest first; search and filters are in the address."""
    rows = selectors.audit_visible_to(actor_of(request))
    search = request.GET.get("q", "").strip()
    chosen = {name: request.GET[name].strip() for name in FILTERS if request.GET.get(name, "").strip()}
    rows = selectors.audit_search(rows, search).filter(**chosen)
    query = urlencode({**({"q": search} if search else {}), **chosen})
    export = f"audit/export?{query}" if query else "audit/export"
    context = {
        "page": keyset_page(request, rows, PAGE_SIZE),
        "search": search,
        "chosen": chosen,
        "export": f"/api/v1/{export}",
        "curl": f"{equivalents.curl('GET', export)} > audit.jsonl\nflotilla audit verify audit.jsonl",
    }
    return render_page(request, "web/audit.html", context, current="audit")
