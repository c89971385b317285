from __future__ import annotations

import pytest

from serving_node.contract.control import Desired, DesiredModel, FileRef, Reason, Route, Unit
from serving_node.contract.states import UnitState
from workers.node_client.client import NodeAddress, call
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.fake import FakeNode

ADDRESS = NodeAddress("n", "", "", "")


def desired(generation: int, *units: str, epoch: int = 1) -> Desired:
    loaded = tuple(Unit(unit, 1, "c" * 64, {}, "m" * 64, (FileRef("model.onnx", "a" * 64, 1),)) for unit in units)
    return Desired(epoch, generation, (DesiredModel("m", tuple(Route(unit, 100) for unit in units[:1]), loaded),))


async def put(node: FakeNode, state: Desired) -> object:
    async with node.connect(ADDRESS) as client:
        return await client.put_desired(state)


async def test_generations_only_rise_within_an_epoch() -> None:
    node = FakeNode("n")
    await put(node, desired(2, "a"))
    await put(node, desired(2, "a"))
    assert len(node.pushes) == 1
    for refused in (desired(1, "a"), desired(2, "b")):
        with pytest.raises(NodeClientError) as caught:
            await put(node, refused)
        assert caught.value.code is NodeErrorCode.CONFLICT
    await put(node, desired(1, "b", epoch=2))
    assert node.observed().epoch == 2


async def test_units_go_their_way_or_fail() -> None:
    node = FakeNode("n", failing={"bad": Reason("load_failed", "no")})
    await put(node, desired(1, "good", "bad"))
    assert node.observed().generation_applied == 0
    node.advance(5)
    states = {unit.unit: unit for unit in node.observed().models}
    assert states["good"].state is UnitState.READY
    assert (states["bad"].state, states["bad"].reason) == (UnitState.FAILED, Reason("load_failed", "no"))
    assert node.observed().generation_applied == 1
    node.restart()
    assert {unit.state for unit in node.observed().models} == {UnitState.ABSENT}


async def test_lost_requests_have_no_effect_and_lost_answers_have() -> None:
    node = FakeNode("n", refuse_requests=1)
    with pytest.raises(NodeClientError):
        await put(node, desired(1, "a"))
    assert node.desired is None
    node.lose_answers = 1
    with pytest.raises(NodeClientError):
        await put(node, desired(1, "a"))
    assert node.desired is not None


def test_call_works_from_synchronous_code() -> None:
    node = FakeNode("n", log=["one", "two", "three"])
    assert call(node.connect, ADDRESS, lambda client: client.logs(tail=2)) == ["two", "three"]
