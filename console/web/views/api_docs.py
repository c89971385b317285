"""The REST API, described: all addresses, and a page for each noun."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.web import equivalents
from console.web.api_reference import Group, OperationDoc, group, groups
from console.web.page import page, render_page
from registry.errors import NotFound


@require_GET
@page
def api_docs(request: HttpRequest) -> HttpResponse:
    """Every address with what it does; ``?q=`` keeps those that have all the words."""
    search = request.GET.get("q", "")[:200]
    words = search.lower().split()
    rows = [(part, kept) for part in groups() if (kept := [one for one in part.operations if _has(part, one, words)])]
    context = {
        "rows": rows,
        "search": search,
        "found": sum(len(kept) for _part, kept in rows),
        "total": sum(len(part.operations) for part in groups()),
        "first": equivalents.curl("GET", "me/"),
    }
    return render_page(request, "web/api_docs/index.html", context)


@require_GET
@page
def api_docs_group(request: HttpRequest, name: str) -> HttpResponse:
    """The operations of one noun: parameters, bodies, answers, examples, commands."""
    found = group(name)
    if found is None:
        raise NotFound(_("The API has no such part."))
    return render_page(request, "web/api_docs/group.html", {"group": found})


def _has(part: Group, one: OperationDoc, words: list[str]) -> bool:
    text = f"{part.name} {one.method} {one.address} {one.summary} {one.text}".lower()
    return all(word in text for word in words)
