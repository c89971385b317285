"""What Triton's public example programs do, done by programs of ours: loading and unloading models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.serving_node.server.processes import NodeProcess, eventually

from .conftest import Serve
from .models import MODELS

NAMES = ("simple", "simple_int8", "simple_string")


@pytest.fixture(scope="module")
def node(serve: Serve) -> Iterator[NodeProcess]:
    with serve(*NAMES, flags=("--model-control-mode=explicit",)) as node:
        yield node


def index(library: Any, client: Any) -> list[dict[str, Any]]:
    if library is triton_http:
        return list(client.get_model_repository_index())
    return list(client.get_model_repository_index(as_json=True)["models"])


def batch_size(library: Any, client: Any) -> int:
    if library is triton_http:
        return int(client.get_model_config("simple")["max_batch_size"])
    return int(client.get_model_config("simple").config.max_batch_size)


def test_a_model_is_loaded_changed_and_unloaded(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    assert sorted(row["name"] for row in index(library, client)) == sorted(NAMES)
    client.load_model("simple")
    assert client.is_model_ready("simple")
    assert batch_size(library, client) == 8

    with pytest.raises(InferenceServerException, match="failed to load"):
        client.load_model("simple", config='"parameters": {"config": {{"max_batch_size": "16"}}}')
    assert client.is_model_ready("simple"), "a refused load leaves what serves"

    client.load_model("simple", config='{"max_batch_size": "16"}')
    assert batch_size(library, client) == 16
    inputs = [library.InferInput(f"INPUT{number}", [12, 16], "INT32") for number in (0, 1)]
    for tensor in inputs:
        tensor.set_data_from_numpy(np.ones((12, 16), np.int32))
    assert client.infer("simple", inputs).as_numpy("OUTPUT0").sum() == 2 * 12 * 16

    client.unload_model("simple")
    assert not client.is_model_ready("simple")

    def is_unloaded() -> bool:
        (row,) = [row for row in index(library, client) if row["name"] == "simple"]
        return (row["state"], row.get("reason")) == ("UNAVAILABLE", "unloaded")

    eventually(is_unloaded, "the model is gone")


def test_unknown_names_cannot_be_loaded_but_unloaded(protocol: tuple[Any, Any]) -> None:
    _, client = protocol
    with pytest.raises(InferenceServerException, match="failed to load 'nobody', failed to poll from model repository"):
        client.load_model("nobody")
    client.unload_model("nobody")


def test_a_model_of_files_that_come_with_the_load(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    name = "brought" if library is triton_http else "brought_too"
    config = {
        "backend": "python",
        "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    }
    code = MODELS["custom_identity_int32"].code.encode()
    client.load_model(name, config=json.dumps(config), files={"file:3/model.py": code})
    given = library.InferInput("INPUT0", [3], "INT32")
    given.set_data_from_numpy(np.array([1, 2, 3], np.int32))
    assert client.infer(name, [given], model_version="3").as_numpy("OUTPUT0").tolist() == [1, 2, 3]
    client.unload_model(name)
    assert not client.is_model_ready(name)


def test_a_file_name_that_no_folder_can_hold_is_refused(protocol: tuple[Any, Any]) -> None:
    _, client = protocol
    with pytest.raises(InferenceServerException, match="failed to poll from model repository"):
        client.load_model("simple", config="{}", files={"file:" + "A" * 256: b"a"})
    assert client.is_server_live()
