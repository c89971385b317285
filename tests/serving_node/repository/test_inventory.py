from __future__ import annotations

import json

import pytest

from serving_node.repository import inventory


def test_take_inventory_is_json_and_imports_no_engine() -> None:
    taken = inventory.take_inventory({"zone": "a"})
    assert json.loads(json.dumps(taken)) == taken
    assert taken["labels"] == {"zone": "a"}
    assert taken["memory_bytes"] > 0
    assert taken["backends"]["onnxruntime"]


@pytest.mark.parametrize(
    ("backend", "installed", "expected"),
    [("onnxruntime", True, 2), ("onnxruntime", False, 0), ("identity", False, 0), ("tensorrt", False, 2)],
)
def test_usable_gpus_needs_the_build_for_gpus(
    monkeypatch: pytest.MonkeyPatch, backend: str, installed: bool, expected: int
) -> None:
    monkeypatch.setattr(inventory, "installed_version", lambda name: "1.0" if installed else None)
    assert inventory.usable_gpus(backend, 2) == expected
