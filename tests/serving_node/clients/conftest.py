"""One node process for each module, with the models of ``models``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.serving_node.server.processes import NodeProcess

from .models import write

Serve = Callable[..., Any]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Return a context manager that serves the named models until it ends."""

    @contextmanager
    def run(*names: str, flags: tuple[str, ...] = ()) -> Iterator[NodeProcess]:
        folder: Path = tmp_path_factory.mktemp("node")
        repository = write(folder / "models", names)
        node = NodeProcess(folder / "log", f"--model-repository={repository}", *flags)
        node.start()
        try:
            yield node.until_ready()
        finally:
            node.end()

    return run


@pytest.fixture
def http(node: NodeProcess) -> Iterator[triton_http.InferenceServerClient]:
    with triton_http.InferenceServerClient(f"127.0.0.1:{node.http}", concurrency=4, network_timeout=30) as client:
        yield client


@pytest.fixture
def grpc(node: NodeProcess) -> Iterator[triton_grpc.InferenceServerClient]:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        yield client


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Return Triton's client library of one protocol, and a client of it."""
    library = {"http": triton_http, "grpc": triton_grpc}[request.param]
    return library, request.getfixturevalue(request.param)
