"""What Triton's public example programs do, done by programs of ours: tensors in shared memory of a real node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, serialized_byte_size, shared_memory

from tests.serving_node.server.processes import NodeProcess

from .conftest import Serve

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.ones((1, 16), np.int32)


@pytest.fixture(scope="module")
def node(serve: Serve) -> Iterator[NodeProcess]:
    with serve("simple", "simple_string", flags=("--allow-client-shm=true",)) as node:
        yield node


class Region:
    """A shared memory object that is registered while it is used."""

    def __init__(self, client: Any, size: int) -> None:
        self.name = f"flotilla-test-{os.getpid()}-{uuid4().hex[:8]}"
        self.handle = shared_memory.create_shared_memory_region(self.name, f"/{self.name}", size)
        self._client = client
        self._size = size

    def __enter__(self) -> Region:
        self._client.register_system_shared_memory(self.name, f"/{self.name}", self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.unregister_system_shared_memory(self.name)
        shared_memory.destroy_shared_memory_region(self.handle)


def tensors(library: Any, region: Region, kind: str, sizes: tuple[int, int]) -> list[Any]:
    inputs = [library.InferInput(f"INPUT{number}", [1, 16], kind) for number in (0, 1)]
    inputs[0].set_shared_memory(region.name, sizes[0])
    inputs[1].set_shared_memory(region.name, sizes[1], offset=sizes[0])
    return inputs


def test_numbers(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    with Region(client, 128) as given, Region(client, 128) as wanted:
        shared_memory.set_shared_memory_region(given.handle, [A, B])
        outputs = [library.InferRequestedOutput(f"OUTPUT{number}") for number in (0, 1)]
        outputs[0].set_shared_memory(wanted.name, 64)
        outputs[1].set_shared_memory(wanted.name, 64, offset=64)
        client.infer("simple", tensors(library, given, "INT32", (64, 64)), outputs=outputs)
        for number, numbers in enumerate((A + B, A - B)):
            got = shared_memory.get_contents_as_numpy(wanted.handle, np.int32, [1, 16], offset=64 * number)
            assert np.array_equal(got, numbers)


def test_strings(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    given_texts = [serialize_byte_tensor(array.astype(str).astype(np.object_)) for array in (A, B)]
    sizes = (serialized_byte_size(given_texts[0]), serialized_byte_size(given_texts[1]))
    with Region(client, sum(sizes)) as given, Region(client, 256) as wanted:
        shared_memory.set_shared_memory_region(given.handle, given_texts)
        outputs = [library.InferRequestedOutput("OUTPUT0"), library.InferRequestedOutput("OUTPUT1")]
        outputs[0].set_shared_memory(wanted.name, 256)
        result = client.infer("simple_string", tensors(library, given, "BYTES", sizes), outputs=outputs)
        got = shared_memory.get_contents_as_numpy(wanted.handle, np.object_, [1, 16])
        assert [int(text) for text in got[0]] == (A + B)[0].tolist()
        assert [int(text) for text in result.as_numpy("OUTPUT1")[0]] == (A - B)[0].tolist()


def test_objects_of_a_request_change_between_regions_and_data(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    with Region(client, 128) as given, Region(client, 64) as wanted:
        shared_memory.set_shared_memory_region(given.handle, [A, B])
        inputs = tensors(library, given, "INT32", (64, 64))
        outputs = [library.InferRequestedOutput("OUTPUT0")]
        outputs[0].set_shared_memory(wanted.name, 64)
        client.infer("simple", inputs, outputs=outputs)
        assert np.array_equal(shared_memory.get_contents_as_numpy(wanted.handle, np.int32, [1, 16]), A + B)
        inputs[0].set_data_from_numpy(B)
        inputs[1].set_data_from_numpy(B)
        outputs[0].unset_shared_memory()
        assert np.array_equal(client.infer("simple", inputs, outputs=outputs).as_numpy("OUTPUT0"), B + B)


def test_what_was_unregistered_is_unknown(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    with Region(client, 128) as given:
        pass
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region"):
        client.infer("simple", tensors(library, given, "INT32", (64, 64)))


def test_an_object_that_its_owner_removed_serves_until_it_is_unregistered(node: NodeProcess) -> None:
    with triton_http.InferenceServerClient(f"127.0.0.1:{node.http}") as client, Region(client, 128) as given:
        shared_memory.set_shared_memory_region(given.handle, [A, B])
        os.unlink(f"/dev/shm/{given.name}")
        result = client.infer("simple", tensors(triton_http, given, "INT32", (64, 64)))
        assert np.array_equal(result.as_numpy("OUTPUT0"), A + B)
        client.unregister_system_shared_memory(given.name)
        with pytest.raises(InferenceServerException, match="Unable to open shared memory region"):
            client.register_system_shared_memory(given.name, f"/{given.name}", 128)
        with open(f"/dev/shm/{given.name}", "wb"):
            pass


def test_a_client_that_cuts_its_object_does_not_end_the_node(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    with Region(client, 1 << 20) as given:
        os.truncate(f"/dev/shm/{given.name}", 0)
        with pytest.raises(InferenceServerException, match="Invalid offset \\+ byte size for shared memory region"):
            client.infer("simple", tensors(library, given, "INT32", (64, 64)))
    assert client.is_server_ready()


def test_regions_outlive_the_client_that_registered_them(node: NodeProcess) -> None:
    name = f"flotilla-test-{os.getpid()}-{uuid4().hex[:8]}"
    handle = shared_memory.create_shared_memory_region(name, f"/{name}", 128)
    try:
        program = "\n".join(
            (
                "import sys, tritonclient.http as triton",
                "client = triton.InferenceServerClient(sys.argv[1])",
                "client.register_system_shared_memory(sys.argv[2], '/' + sys.argv[2], 128)",
            )
        )
        subprocess.run([sys.executable, "-c", program, f"127.0.0.1:{node.http}", name], check=True, timeout=60)
        with triton_http.InferenceServerClient(f"127.0.0.1:{node.http}") as client:
            assert [row["name"] for row in client.get_system_shared_memory_status(name)] == [name]
            client.unregister_system_shared_memory()
            assert client.get_system_shared_memory_status() == []
    finally:
        shared_memory.destroy_shared_memory_region(handle)
