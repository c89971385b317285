"""Lists: pages that stay stable while rows come and go, orders, filters, ranges and fields; nothing unknown passes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from console.api.v1.urls import urlpatterns
from registry.models import Fleet, Operation, RegisteredModel
from registry.services.operations import operation_create
from tests.console.api.test_routes import filled
from tests.console.conftest import Cast, join_node

MODELS = "/api/v1/projects/wren/models/"


def walk(client: APIClient, address: str | None, link: str = "next") -> list[list[dict[str, Any]]]:
    pages = []
    while address:
        document = client.get(address).json()
        pages.append(document["results"])
        address = document[link]
    return pages


@pytest.fixture
def many(cast: Cast) -> list[RegisteredModel]:
    """Twelve models, three of each time of creation."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return RegisteredModel.objects.bulk_create(
        RegisteredModel(
            project=cast.project,
            slug=f"m{number:02}",
            owner=cast.bob if number % 2 else cast.alice,
            created_at=start + timedelta(hours=number // 3),
        )
        for number in range(12)
    )


@pytest.mark.parametrize("ordering", ["created_at", "-created_at", "slug", "-slug", "-created_at,slug", "id"])
@pytest.mark.parametrize("size", [1, 4, 5, 12])
def test_pages_hold_each_row_once_in_order_and_lead_back(
    many: list[RegisteredModel], api: Callable[..., Any], ordering: str, size: int
) -> None:
    vera = api("vera", "read")
    address = f"{MODELS}?ordering={ordering}&page_size={size}&fields=slug,id"
    pages = walk(vera, address)
    slugs = [row["slug"] for page in pages for row in page]
    wanted = RegisteredModel.objects.order_by(*ordering.split(","), "-id" if ordering.startswith("-c") else "id")
    if ordering != "-created_at,slug":
        assert slugs == list(wanted.values_list("slug", flat=True))
    assert sorted(slugs) == [model.slug for model in many]
    assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
    last: Any = address
    for _page in pages[1:]:
        last = vera.get(last).json()["next"]
    back = walk(vera, last, "previous")
    assert [row["slug"] for page in reversed(back) for row in page] == slugs


def test_rows_that_come_and_go_are_neither_repeated_nor_missed(
    cast: Cast, many: list[RegisteredModel], api: Callable[..., Any]
) -> None:
    vera = api("vera", "read")
    first = vera.get(f"{MODELS}?page_size=4").json()
    RegisteredModel.objects.create(project=cast.project, slug="new", owner=cast.bob)
    RegisteredModel.objects.filter(slug=first["results"][0]["slug"]).delete()
    later = [row["slug"] for page in walk(vera, first["next"]) for row in page]
    seen = [row["slug"] for row in first["results"]] + later
    assert sorted(seen) == [model.slug for model in many]


def test_filters_and_ranges(many: list[RegisteredModel], api: Callable[..., Any]) -> None:
    vera = api("vera", "read")

    def slugs(query: str) -> list[str]:
        return [row["slug"] for row in vera.get(f"{MODELS}?{query}&ordering=slug").json()["results"]]

    assert slugs("slug=m01,m02,nothing") == ["m01", "m02"]
    assert slugs("slug=m01,m02&owner__username=bob") == ["m01"]
    begin, end = quote("2026-01-01T01:00:00+00:00"), quote("2026-01-01T02:00:00Z")
    assert slugs(f"created_at__gte={begin}&created_at__lt={end}") == ["m03", "m04", "m05"]
    assert slugs("created_at__lt=2026-01-01T01:00:00+00:00") == ["m00", "m01", "m02"]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("colour=blue", "colour"),
        ("state=open", "state"),
        ("slug=a&slug=b", "slug"),
        ("fields=slug,secret", "fields"),
        ("ordering=description", "ordering"),
        ("ordering=slug,slug", "ordering"),
        ("ordering=--slug", "ordering"),
        ("page_size=0", "page_size"),
        ("page_size=201", "page_size"),
        ("page_size=1e3", "page_size"),
        ("page_size=%D9%A3", "page_size"),
        ("created_at__gte=yesterday", "created_at__gte"),
        ("created_at__gte=99999-01-01", "created_at__gte"),
        ("created_at__gte=9999-12-31T23:59:59-23:59", "created_at__gte"),
        ("created_at__lt=0001-01-01T00:00:00%2B23:59", "created_at__lt"),
        ("cursor=zzz", "cursor"),
        pytest.param("cursor=" + "A" * 3000, "cursor", id="long"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    many: list[RegisteredModel], api: Callable[..., Any], query: str, parameter: str
) -> None:
    answer = api("vera", "read").get(f"{MODELS}?{query}")
    assert answer.status_code == 400, answer.content
    problem = answer.json()
    assert problem["code"] == "validation_failed"
    assert problem["errors"][0]["parameter"] == parameter and "pointer" not in problem["errors"][0]


@pytest.mark.parametrize("value", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "\\u0000", "x"])
def test_an_invented_cursor_is_refused(many: list[RegisteredModel], api: Callable[..., Any], value: str) -> None:
    document = f'["-created_at,-id",false,["{value}","{many[0].pk}"]]'
    cursor = base64.urlsafe_b64encode(document.encode()).rstrip(b"=").decode()
    answer = api("vera", "read").get(f"{MODELS}?ordering=-created_at,-id&cursor={cursor}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "cursor")


def test_a_cursor_is_of_its_own_list_and_order(many: list[RegisteredModel], api: Callable[..., Any]) -> None:
    vera = api("vera", "read")
    cursor = vera.get(f"{MODELS}?page_size=2&ordering=slug").json()["next"].partition("cursor=")[2].partition("&")[0]
    assert vera.get(f"{MODELS}?ordering=slug&cursor={cursor}").status_code == 200
    assert vera.get(f"{MODELS}?cursor={cursor}").status_code == 400
    assert vera.get(f"/api/v1/operations/?cursor={cursor}").status_code == 400


@pytest.mark.parametrize(
    "value",
    [
        *("9" * 40, "%00x"),
        *(
            pytest.param(value, marks=pytest.mark.slow)
            for value in ("", "x", "-1", "1.5", "true", "null", "%F0%9F%A6%86")
        ),
        pytest.param("a" * 5000, id="long", marks=pytest.mark.slow),
    ],
)
def test_no_value_of_a_filter_is_an_unexpected_error(cast: Cast, api: Callable[..., Any], value: str) -> None:
    cast.ready_version()
    alice = api("alice")
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "view_class", None)
        listing = getattr(view, "listing", None)
        if listing is not None:
            for name in listing.names():
                answer = alice.get(f"{filled(str(pattern.pattern))}?{name}={value}")
                assert answer.status_code < 500, (pattern, name, answer.content)


def test_every_list_answers_in_each_of_its_orders(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version()
    cast.environment("dev", approvals=0)
    join_node(cast)
    subject = cast.project.pk
    operation_create(
        kind="bench", queue="jobs", subject_type="x", subject_id=subject, project=cast.project, actor=cast.actor("bob")
    )
    alice = api("alice")
    for pattern in urlpatterns:
        listing = getattr(getattr(pattern.callback, "view_class", None), "listing", None)
        for name in (*listing.orderings, "id") if listing is not None and listing.is_paged else ():
            for sign in ("", "-"):
                answer = alice.get(f"{filled(str(pattern.pattern))}?ordering={sign}{name}&page_size=1")
                assert answer.status_code in (200, 404), (pattern, name, answer.content)
                if answer.status_code == 200 and answer.json()["next"]:
                    assert alice.get(answer.json()["next"]).status_code == 200
    assert Fleet.objects.count() and Operation.objects.count()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_any_text_as_a_cursor_is_refused_or_read(
    many: list[RegisteredModel], api: Callable[..., Any], text: str
) -> None:
    answer = api("vera", "read").get(MODELS, {"cursor": text.encode(errors="replace").decode()})
    assert answer.status_code in (200, 400)
