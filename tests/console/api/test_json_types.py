"""A body's values have the types of JSON that the description names: nothing is taken for something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework import serializers

from console.api.json_types import type_errors
from tests.console.conftest import Cast

pytestmark = pytest.mark.django_db


class Link(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]


class Body(serializers.Serializer[Any]):
    name = serializers.CharField()
    count = serializers.IntegerField()
    share = serializers.FloatField()
    is_open = serializers.BooleanField()
    key = serializers.UUIDField()
    role = serializers.ChoiceField(choices=["1", "viewer"])
    tags = serializers.DictField(child=serializers.CharField())
    words = serializers.ListField(child=serializers.CharField())
    links = Link(many=True)
    link = Link()
    anything = serializers.JSONField()
    seen = serializers.CharField(read_only=True)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"name": 5}, ["name"]),
        ({"name": True, "count": 1}, ["name"]),
        ({"count": "5"}, ["count"]),
        ({"count": True}, ["count"]),
        ({"count": 1.5}, ["count"]),
        ({"share": "0.5"}, ["share"]),
        ({"share": False}, ["share"]),
        ({"is_open": "yes"}, ["is_open"]),
        ({"is_open": 1}, ["is_open"]),
        ({"key": 12}, ["key"]),
        ({"role": 1}, ["role"]),
        ({"tags": {"a": "b", "c": 1}}, ["tags"]),
        ({"words": ["a", 2]}, ["words"]),
        ({"links": [{"label": "a"}, {"label": 3}]}, ["links"]),
        ({"link": {"label": []}}, ["link"]),
        ({"name": {}, "count": []}, ["name", "count"]),
    ],
)
def test_another_type_of_json_is_refused(body: dict[str, Any], fields: list[str]) -> None:
    assert list(type_errors(Body(), body)) == fields


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a", "count": 2, "share": 1, "is_open": False, "role": "1", "tags": {"a": "b"}, "words": ["c"]},
        {"count": 2.0, "share": 0.25, "links": [{"label": "a"}], "link": {"label": "b"}, "anything": [1, "a", None]},
        {"name": None, "seen": 5, "unknown": 6},
        {"tags": [], "words": {}, "links": "a", "link": 5},  # what is no object or list, the framework refuses
        [],
    ],
)
def test_the_types_that_are_described_are_taken(body: Any) -> None:
    assert not type_errors(Body(), body)


def test_the_answer_names_the_place(api: Callable[..., Any]) -> None:
    body = {"slug": "heron", "tags": {"size": 5}, "links": [{"label": "Paper", "url": 7}]}
    answer = api("alice").post("/api/v1/projects/wren/models/", body)
    assert answer.status_code == 400
    told = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert told == dict.fromkeys(("tags.size", "links[0].url"), "This is no text; put it in quotes.")


@pytest.mark.parametrize("name", ["ordering", "fields", "cursor", "page_size", "state", "created_at__gte"])
def test_a_parameter_without_a_value_is_refused(api: Callable[..., Any], name: str) -> None:
    answer = api("alice").get(f"/api/v1/projects/wren/models/?{name}=")
    assert answer.status_code == 400
    assert answer.json()["errors"] == [
        {"field": name, "parameter": name, "message": f"“{name}” is empty; leave it out."}
    ]


def test_put_takes_no_tag_as_if_none_match(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version()
    put = api("bob").put
    card = "/api/v1/projects/wren/models/finch/card/"
    answer = put(card, {"text": "a"}, HTTP_IF_NONE_MATCH='"abc"', HTTP_IF_MATCH="*")
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_failed")
    assert put(card, {"text": "a"}, HTTP_IF_NONE_MATCH="*").status_code == 201
