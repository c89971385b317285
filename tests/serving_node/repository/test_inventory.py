from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving_node.repository import inventory


def test_take_inventory_is_json_and_imports_no_engine() -> None:
    taken = inventory.take_inventory({"zone": "a"})
    assert json.loads(json.dumps(taken)) == taken
    assert taken["labels"] == {"zone": "a"}
    assert taken["memory_bytes"] > 0
    assert taken["backends"]["onnxruntime"]


def test_take_inventory_names_backends_of_other_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "linear-2.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: linear\nVersion: 2.5\n")
    (folder / "entry_points.txt").write_text("[flotilla.backends]\nlinear = linear:backend\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert inventory.take_inventory({})["backends"]["linear"] == "2.5"


@pytest.mark.parametrize(
    ("backend", "installed", "expected"),
    [("onnxruntime", True, 2), ("onnxruntime", False, 0), ("identity", False, 0), ("tensorrt", False, 2)],
)
def test_usable_gpus_needs_the_build_for_gpus(
    monkeypatch: pytest.MonkeyPatch, backend: str, installed: bool, expected: int
) -> None:
    monkeypatch.setattr(inventory, "installed_version", lambda name: "1.0" if installed else None)
    assert inventory.usable_gpus(backend, 2) == expected
