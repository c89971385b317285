"""Control messages: what goes over the wire comes back, and nothing else is understood."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.control import (
    Desired,
    DesiredModel,
    Drain,
    FileRef,
    Observed,
    ObservedUnit,
    Reason,
    Route,
    Unit,
)
from serving_node.contract.errors import ContractError
from serving_node.contract.messages import Message
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.contract.states import RouteRole, UnitState

_floats = st.floats(allow_nan=False, allow_infinity=False)
st.register_type_strategy(float, _floats)
_JSON_OBJECTS = st.dictionaries(st.text(max_size=3), st.integers(0, 9) | st.text(max_size=3), max_size=2)

UNIT = Unit("u1", 3, "c" * 64, {"max_batch_size": 8}, "m" * 64, (FileRef("model.onnx", "f" * 64, 12),), keep_warm=True)
DESIRED = Desired(
    epoch=1,
    generation=7,
    models=(DesiredModel("resnet", (Route("u1", 90), Route("u2", 10, RouteRole.CANARY, 2.5)), (UNIT,), "x-user"),),
    drain=Drain(30.0),
)


def _messages() -> st.SearchStrategy[Message]:
    units = st.builds(
        Unit,
        st.text(max_size=3),
        st.integers(),
        st.text(),
        _JSON_OBJECTS,
        st.text(),
        st.tuples(),
        st.booleans(),
        st.booleans(),
    )
    models = st.builds(
        DesiredModel, st.text(), st.lists(st.builds(Route)).map(tuple), st.lists(units, max_size=2).map(tuple)
    )
    return st.one_of(
        st.builds(
            Desired, st.integers(), st.integers(), st.lists(models, max_size=2).map(tuple), st.none() | st.builds(Drain)
        ),
        st.builds(
            Observed,
            st.text(),
            st.integers(),
            st.integers(),
            st.integers(),
            models=st.lists(st.builds(ObservedUnit, reason=st.none() | st.builds(Reason)), max_size=2).map(tuple),
            inventory=_JSON_OBJECTS,
        ),
        st.builds(
            ModelSignature,
            st.lists(st.builds(TensorSignature), max_size=2).map(tuple),
            st.lists(st.builds(TensorSignature), max_size=2).map(tuple),
        ),
    )


@given(_messages())
def test_every_message_comes_back_equal(message: Message) -> None:
    assert type(message).from_json(json.loads(json.dumps(message.to_json()))) == message


def test_desired_has_the_documented_form() -> None:
    assert DESIRED.to_json() == {
        "epoch": 1,
        "generation": 7,
        "models": [
            {
                "name": "resnet",
                "routes": [
                    {"unit": "u1", "weight": 90, "role": "live", "sample_percent": 0.0},
                    {"unit": "u2", "weight": 10, "role": "canary", "sample_percent": 2.5},
                ],
                "units": [
                    {
                        "unit": "u1",
                        "version": 3,
                        "config_digest": "c" * 64,
                        "config": {"max_batch_size": 8},
                        "manifest_digest": "m" * 64,
                        "files": [{"path": "model.onnx", "sha256": "f" * 64, "size": 12}],
                        "keep_warm": True,
                        "code_permitted": False,
                        "signer": None,
                    }
                ],
                "sticky": "x-user",
            }
        ],
        "drain": {"deadline_seconds": 30.0},
    }


def test_defaults_may_be_left_out() -> None:
    assert Desired.from_json({"epoch": 1, "generation": 2}) == Desired(1, 2)
    observed = {"name": "m", "unit": "u", "version": 1, "state": "ready"}
    assert ObservedUnit.from_json(observed) == ObservedUnit("m", "u", 1, UnitState.READY)


def _changed(path: list[str | int], value: Any) -> Any:
    document = DESIRED.to_json()
    target: Any = document
    for step in path[:-1]:
        target = target[step]
    if value is KeyError:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message", "field"),
    [
        (["extra"], 1, "unknown field extra", "extra"),
        (
            ["models", 0, "routes", 1, "colour"],
            1,
            "unknown field models[0].routes[1].colour",
            "models[0].routes[1].colour",
        ),
        (["epoch"], KeyError, "missing field epoch", "epoch"),
        (
            ["models", 0, "units", 0, "files", 0, "size"],
            KeyError,
            "missing field models[0].units[0].files[0].size",
            "models[0].units[0].files[0].size",
        ),
        (["epoch"], "1", "epoch must be of type int", "epoch"),
        (["epoch"], True, "epoch must be of type int", "epoch"),
        (["epoch"], 1.0, "epoch must be of type int", "epoch"),
        (["epoch"], None, "epoch must be of type int", "epoch"),
        (["models"], {}, "models must be a list", "models"),
        (["models", 0], [], "models[0] must be an object", "models[0]"),
        (["models", 0, "name"], 3, "models[0].name must be of type str", "models[0].name"),
        (
            ["models", 0, "units", 0, "config"],
            "{}",
            "models[0].units[0].config must be an object",
            "models[0].units[0].config",
        ),
        (
            ["models", 0, "units", 0, "keep_warm"],
            1,
            "models[0].units[0].keep_warm must be of type bool",
            "models[0].units[0].keep_warm",
        ),
        (
            ["models", 0, "routes", 0, "role"],
            "leader",
            "models[0].routes[0].role has the unknown value 'leader'",
            "models[0].routes[0].role",
        ),
        (
            ["models", 0, "routes", 0, "role"],
            [],
            "models[0].routes[0].role has the unknown value []",
            "models[0].routes[0].role",
        ),
        (["drain", "deadline_seconds"], "30", "drain.deadline_seconds must be of type float", "drain.deadline_seconds"),
        (["drain", "deadline_seconds"], True, "drain.deadline_seconds must be of type float", "drain.deadline_seconds"),
        (
            ["drain", "deadline_seconds"],
            float("nan"),
            "drain.deadline_seconds must be a finite number",
            "drain.deadline_seconds",
        ),
        (
            ["drain", "deadline_seconds"],
            10**400,
            "drain.deadline_seconds must be a finite number",
            "drain.deadline_seconds",
        ),
    ],
)
def test_a_message_that_is_not_understood_is_refused(
    path: list[str | int], value: Any, message: str, field: str
) -> None:
    with pytest.raises(ContractError) as caught:
        Desired.from_json(_changed(path, value))
    assert (caught.value.message, caught.value.field) == (message, field)


@pytest.mark.parametrize("document", [[], "x", None, 3])
def test_a_message_is_an_object(document: Any) -> None:
    with pytest.raises(ContractError, match="document must be an object"):
        Desired.from_json(document)


def test_an_integer_is_a_fine_number_of_seconds() -> None:
    drain = Drain.from_json({"deadline_seconds": 3})
    assert isinstance(drain.deadline_seconds, float)


@pytest.mark.parametrize(
    ("inputs", "outputs", "batchable"),
    [
        ([(-1, 3)], [(-1,)], True),
        ([(-1, 3)], [(4,)], False),
        ([(-1, 3)], [()], False),
        ([], [], False),
    ],
)
def test_a_signature_is_batchable_when_every_first_dimension_is_dynamic(
    inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], batchable: bool
) -> None:
    sides = [
        tuple(TensorSignature(str(i), "FP32", shape) for i, shape in enumerate(side)) for side in (inputs, outputs)
    ]
    assert ModelSignature(sides[0], sides[1]).is_batchable is batchable
    assert not ModelSignature(sides[0], sides[1], has_rows=False).is_batchable
