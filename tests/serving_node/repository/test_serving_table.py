from __future__ import annotations

import pytest

from serving_node.contract.control import Route
from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState, RouteRole
from serving_node.core.errors import InferenceError
from serving_node.repository.routes import RouteTable
from serving_node.repository.serving_table import ServingTable

from .served import request, served_model


@pytest.fixture
def routed() -> ServingTable:
    table = ServingTable(routed=True, chance=lambda: 0.95)
    table.put(served_model(version=1, unit="u1"))
    table.put(served_model(version=2, unit="u2"))
    table.set_routes("m", RouteTable((Route("u1", 90), Route("u2", 10, RouteRole.CANARY)), sticky="user"))
    return table


def test_resolve_without_routes_takes_the_highest_ready_version() -> None:
    table = ServingTable()
    table.swap("m", [served_model(version=9), served_model(version=10)])
    assert table.resolve("m", "", request()).version == 10
    assert table.resolve("m", "9", request()).version == 9
    for text in ("9", "09", "+9", " 9", "9.5", "9x"):  # as Triton reads numbers
        assert table.resolve("m", text, None).version == 9


@pytest.mark.parametrize(
    ("name", "version", "code", "text"),
    [
        ("x", "", ErrorCode.NOT_FOUND, "Request for unknown model: 'x' is not found"),
        ("m", "7", ErrorCode.NOT_FOUND, "Request for unknown model: 'm' version 7 is not found"),
        ("m", "3", ErrorCode.UNAVAILABLE, "Request for unknown model: 'm' version 3 is not at ready state"),
        ("gone", "", ErrorCode.NOT_FOUND, "Request for unknown model: 'gone' has no available versions"),
        ("m", "0", ErrorCode.NOT_FOUND, "Request for unknown model: 'm' version 0 is not found"),
        (
            "m",
            "new",
            ErrorCode.INVALID_ARG,
            "from specified version string 'new' \\(details: stol\\), version should be",
        ),
        ("m", "9" * 19, ErrorCode.INVALID_ARG, "\\(details: stol\\), version should be an integral value > 0"),
        ("m", "9" * 5000, ErrorCode.INVALID_ARG, "\\(details: stol\\), version should be an integral value > 0"),
        (
            "m",
            "-1",
            ErrorCode.INVALID_ARG,
            "invalid model version specified '-1' , version should be an integral value",
        ),
    ],
)
def test_resolve_refusals_use_tritons_words(name: str, version: str, code: ErrorCode, text: str) -> None:
    table = ServingTable()
    table.put(served_model(version=1))
    table.note("m", "3", 3, ModelState.LOADING)
    table.note("gone", "1", 1, ModelState.UNAVAILABLE, "unloaded")
    with pytest.raises(InferenceError, match=text) as caught:
        table.resolve(name, version, request())
    assert caught.value.code is code


def test_resolve_follows_weights_and_sticky_parameter(routed: ServingTable) -> None:
    assert routed.resolve("m", "", request()).unit == "u2", "chance says 0.95, past the 90 % of u1"
    pinned = {routed.resolve("m", "", request(parameters={"user": "alice"})).unit for _ in range(5)}
    assert len(pinned) == 1
    of_many = {routed.resolve("m", "", request(parameters={"user": f"u{n}"})).unit for n in range(200)}
    assert of_many == {"u1", "u2"}


def test_resolve_metadata_shows_the_live_route(routed: ServingTable) -> None:
    assert routed.resolve("m", "", None).unit == "u1"


def test_resolve_explicit_version_or_unit_passes_the_weights(routed: ServingTable) -> None:
    assert routed.resolve("m", "1", request()).unit == "u1"
    assert routed.resolve("m", "", request(unit="u1")).unit == "u1"
    with pytest.raises(InferenceError, match="unit u9 is not at ready state"):
        routed.resolve("m", "", request(unit="u9"))


def test_resolve_unit_taken_away_gets_no_requests(routed: ServingTable) -> None:
    routed.take("m", "u2")
    assert routed.resolve("m", "", request()).unit == "u1"
    assert routed.weight("m", "u2") == 0


def test_resolve_loaded_unit_without_route_answers_only_by_version() -> None:
    table = ServingTable(routed=True)
    table.put(served_model(version=1, unit="u1"))
    with pytest.raises(InferenceError, match="has no available versions"):
        table.resolve("m", "", request())
    assert table.resolve("m", "1", request()).unit == "u1"


def test_resolve_draining_refuses_requests_but_not_questions(routed: ServingTable) -> None:
    routed.draining = True
    with pytest.raises(InferenceError) as caught:
        routed.resolve("m", "", request())
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert routed.resolve("m", "", None).unit == "u1"


def test_resolve_draining_takes_what_running_requests_ask_for(routed: ServingTable) -> None:
    routed.draining = True
    inner = request()
    inner.inner = True
    assert routed.resolve("m", "", inner).name == "m"


def test_resolve_two_configs_of_one_version_share_by_weight() -> None:
    table = ServingTable(routed=True, chance=lambda: 0.95)
    table.put(served_model(version=1, unit="slow"))
    table.put(served_model(version=1, unit="fast"))
    table.set_routes("m", RouteTable((Route("slow", 90), Route("fast", 10))))
    assert table.resolve("m", "1", request()).unit == "fast"
    assert len(table.index()) == 1


def test_swap_returns_what_must_be_closed() -> None:
    table = ServingTable()
    old, kept, new = (served_model(version=n) for n in (1, 2, 3))
    table.swap("m", [old, kept])
    assert table.swap("m", [kept, new]) == [old]
    assert table.states("m") == {
        1: (ModelState.UNLOADING, ""),
        2: (ModelState.READY, ""),
        3: (ModelState.READY, ""),
    }


def test_all_ready_counts_what_somebody_asked_for() -> None:
    table = ServingTable()
    assert table.all_ready()
    table.swap("m", [served_model(version=1)])
    assert table.all_ready()
    table.note("m", "2", 2, ModelState.UNAVAILABLE, "Internal: broken")
    assert not table.all_ready(), "a version failed"
    table.swap("m", [served_model(version=1)])
    assert table.all_ready(), "the load that came later did not want it"
    table.note("m", "2", 2, ModelState.LOADING)
    assert not table.all_ready()
    table.note("m", "2", 2, ModelState.UNAVAILABLE, "unloaded")
    assert table.all_ready()
    table.know("empty")
    assert not table.all_ready(), "a model without any version serves nobody"


def test_a_copy_that_is_measured_answers_its_unit_id_and_nobody_else() -> None:
    table = ServingTable(routed=True)
    table.put(served_model("~1", version=1, unit="u1"))
    by_unit = request()
    by_unit.unit = "u1"
    assert table.resolve("~1", "", by_unit).unit == "u1"
    for version, asked in (("", request()), ("1", request()), ("", None), ("1", None)):
        with pytest.raises(InferenceError) as refused:
            table.resolve("~1", version, asked)
        assert refused.value.code is ErrorCode.NOT_FOUND
    assert table.sole("~1", "") is None and table.sole("~1", "1") is None
    assert table.index() == []


def test_a_node_that_stands_alone_may_use_any_name() -> None:
    table = ServingTable()
    table.put(served_model("~1", version=1))
    assert table.resolve("~1", "1", request()).version == 1
    assert len(table.index()) == 1
