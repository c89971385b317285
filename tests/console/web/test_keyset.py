"""Long lists: every row once, in order, forwards and backwards, whatever arrives meanwhile."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from console.web.keyset import KeysetPage, keyset_page
from registry.models import AuditEvent
from registry.services import models
from tests.console.web.conftest import Browse, Served


def at(**query: object) -> KeysetPage:
    request = RequestFactory().get("/", {name: str(value) for name, value in query.items()})
    return keyset_page(request, AuditEvent.objects.all(), 3)


class Walk(TestCase):
    @given(st.lists(st.integers(0, 3), max_size=11))
    def test_there_and_back(self, ages: list[int]) -> None:
        from django.utils import timezone

        now = timezone.now()
        for age in ages:
            AuditEvent.objects.create(actor_name="a", action="b", object_id="c", created_at=now - timedelta(hours=age))
        everything = [*AuditEvent.objects.order_by("-created_at", "-pk")]
        page = at()
        pages = [page.object_list]
        assert page.newer is None
        while page.older is not None:
            page = at(before=page.older)
            assert page.newer is not None
            pages.append(page.object_list)
        assert [row for rows in pages for row in rows] == everything
        back = []
        while page.newer is not None:
            page = at(after=page.newer)
            back.append(page.object_list)
        assert [row for rows in back[::-1] for row in rows] == everything[: -len(pages[-1])] if len(pages) > 1 else True


@pytest.mark.django_db
def test_an_unknown_row_shows_the_newest() -> None:
    assert at(before="nonsense").object_list == at(after="00000000-0000-0000-0000-000000000000").object_list == []


def test_the_audit_page_leads_to_older_rows_and_keeps_the_search(
    served: Served, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.web.views.audit.PAGE_SIZE", 2)
    for number in range(3):
        models.model_create(project=served.cast.project, slug=f"quail-{number}", actor=served.cast.actor("alice"))
    client = browse("alice")
    first = client.get("/audit/?q=quail").text
    assert "quail-2" in first
    assert "quail-0" not in first
    older = re.search(r'rel="next" href="(\?[^"]*)"', first)
    assert older is not None
    second = client.get("/audit/" + older[1].replace("&amp;", "&")).text
    assert "quail-0" in second
    assert "quail-2" not in second
    assert 'rel="prev"' in second
    assert "flotilla audit verify" in first
    assert 'href="/api/v1/audit/export?q=quail"' in first


def test_a_long_list_of_models_comes_in_parts(served: Served, browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.web.views.models.LIST_SIZE", 2)
    for number in range(3):
        models.model_create(project=served.cast.project, slug=f"quail-{number}", actor=served.cast.actor("alice"))
    client = browse("alice")
    seen, address = [], "/p/wren/models/"
    for _part in range(2):
        page = client.get(address).text
        seen += re.findall(r'class="title" href="/p/wren/models/([a-z0-9-]+)/"', page)
        more = re.search(r'rel="next" href="(\?[^"]*)"', page)
        address = "/p/wren/models/" + (more[1] if more else "")
    assert seen == ["finch", "quail-0", "quail-1", "quail-2"]
    assert "From the beginning" in page
