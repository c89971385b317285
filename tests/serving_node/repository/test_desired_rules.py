from __future__ import annotations

from dataclasses import replace

import pytest

from serving_node.contract.control import Desired, DesiredModel, Drain, FileRef, Route, Unit
from serving_node.contract.errors import ContractError
from serving_node.repository.desired_rules import DesiredConflictError, check_desired, check_succession

SHA = "a" * 64
UNIT = Unit("u1", 1, "c", {}, "m", (FileRef("model.onnx", SHA, 10),))
MODEL = DesiredModel("m", (Route("u1", 100),), (UNIT,))
DESIRED = Desired(2, 5, (MODEL,))


def with_file(path: str, sha: str = SHA, size: int = 1) -> Desired:
    unit = replace(UNIT, files=(FileRef(path, sha, size),))
    return replace(DESIRED, models=(replace(MODEL, units=(unit,)),))


def test_check_succession_takes_newer_and_knows_the_same() -> None:
    assert check_succession(None, DESIRED)
    assert check_succession(DESIRED, replace(DESIRED, generation=6))
    assert check_succession(DESIRED, replace(DESIRED, epoch=3, generation=1)), "a new epoch restarts the count"
    assert not check_succession(DESIRED, replace(DESIRED))


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (replace(DESIRED, generation=4), "generation 4 is older than 5"),
        (replace(DESIRED, epoch=1, generation=9), "epoch 1 is older than 2"),
        (replace(DESIRED, drain=Drain(1.0)), "seen before with other content"),
    ],
)
def test_check_succession_refuses_older_and_other_content(candidate: Desired, text: str) -> None:
    with pytest.raises(DesiredConflictError, match=text):
        check_succession(DESIRED, candidate)


def test_check_desired_accepts_a_sound_one() -> None:
    check_desired(DESIRED)
    check_desired(with_file("weights/part-1.bin"))
    check_desired(replace(DESIRED, models=(replace(MODEL, routes=MODEL.routes * 2, units=(UNIT, UNIT)),)))


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        (with_file("../escape"), "models[0].units[0].files[0].path"),
        (with_file("/etc/passwd"), "models[0].units[0].files[0].path"),
        (with_file("a//b"), "models[0].units[0].files[0].path"),
        (with_file("a\\b"), "models[0].units[0].files[0].path"),
        (with_file("."), "models[0].units[0].files[0].path"),
        (with_file("x", sha="../../x"), "models[0].units[0].files[0].sha256"),
        (with_file("x", size=-1), "models[0].units[0].files[0].size"),
        (replace(DESIRED, models=(MODEL, MODEL)), "models[1].name"),
        (replace(DESIRED, models=(replace(MODEL, name="../m"),)), "models[0].name"),
        (replace(DESIRED, models=(replace(MODEL, name=""),)), "models[0].name"),
        (replace(DESIRED, models=(replace(MODEL, routes=(Route("u2", 1),)),)), "models[0].routes[0].unit"),
        (replace(DESIRED, models=(replace(MODEL, routes=(Route("u1", 101),)),)), "models[0].routes[0].weight"),
        (
            replace(DESIRED, models=(replace(MODEL, routes=(Route("u1", 1, sample_percent=101),)),)),
            "models[0].routes[0].sample_percent",
        ),
        (
            replace(DESIRED, models=(replace(MODEL, units=(replace(UNIT, files=UNIT.files * 2),)),)),
            "models[0].units[0].files[1].path",
        ),
        (replace(DESIRED, models=(replace(MODEL, units=(UNIT, replace(UNIT, version=2))),)), "models[0].units"),
        (
            replace(DESIRED, models=(replace(MODEL, units=(replace(UNIT, unit="../u"),), routes=()),)),
            "models[0].units[0].unit",
        ),
        (replace(DESIRED, models=(replace(MODEL, units=(replace(UNIT, version=0),)),)), "models[0].units[0].version"),
        (replace(DESIRED, models=(replace(MODEL, units=(replace(UNIT, files=()),)),)), "models[0].units[0].files"),
        (replace(DESIRED, drain=Drain(-1.0)), "drain.deadline_seconds"),
    ],
)
def test_check_desired_names_the_field_that_is_wrong(broken: Desired, where: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_desired(broken)
    assert caught.value.field == where
