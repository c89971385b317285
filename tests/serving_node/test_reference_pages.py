"""The reference pages say what the node does: they are generated from it, or name every route it has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from serving_node.frontends.admin.frontend import AdminFrontend
from serving_node.frontends.grpc.infer import InferService
from serving_node.frontends.grpc.service import Services
from serving_node.frontends.http.frontend import HttpFrontend
from serving_node.wire.http1 import HttpExchange

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_node_reference", ROOT / "scripts" / "generate_node_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh(generator: ModuleType) -> None:
    assert generator.outdated() == [], "run python scripts/generate_node_reference.py"


def documented(page: str) -> list[tuple[str, str]]:
    """Return method and path of every call that a page names."""
    found = re.findall(r"`(GET|POST|PUT|DELETE) (/v\d[^`? ]*|/openapi.json)", (PAGES / page).read_text())
    return [(method, path.replace("{", "").replace("}", "")) for method, path in found]


def test_http_page_names_every_route_and_no_other() -> None:
    frontend = HttpFrontend(cast(Any, MagicMock()))
    calls = documented("http-and-grpc.md")
    for method, path in calls:
        match = frontend.routes.match(path.encode())
        assert match is not None, path
        assert method in match.handlers, (method, path)
    for route in frontend.routes.routes:
        if "repository/[^/]+/models" in route.pattern:
            continue  # a form that is always refused
        for method in set(route.handlers) - {"HEAD"}:
            assert any(m == method and route.expression.match(path) for m, path in calls), (method, route.pattern)


def test_grpc_page_names_every_method_and_no_other() -> None:
    text = (PAGES / "http-and-grpc.md").read_text()
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([A-Za-z0-9./]+)`", row)}
    dataplane = cast(Any, MagicMock())
    methods = Services(dataplane, InferService(dataplane, cast(Any, MagicMock()))).methods
    served = {path.decode().removeprefix("/").removeprefix("inference.GRPCInferenceService/") for path in methods}
    assert named == served


async def test_admin_page_names_only_calls_that_exist() -> None:
    admin = AdminFrontend(*cast(Any, (MagicMock(),) * 5), secret="s")
    called: list[str] = []

    def handler(name: str) -> Any:
        async def answer(*_: object) -> tuple[int, object]:
            called.append(name)
            return 200, {}

        return answer

    handlers = [name for name in dir(admin) if name.startswith(("_put_", "_get_", "_post_", "_delete_"))]
    for name in handlers:
        setattr(admin, name, handler(name))
    for method, path in documented("admin-api.md"):
        exchange = MagicMock(spec=HttpExchange, method=method, path=path.encode(), query=b"")
        assert (await admin._route(exchange))[0] == 200, (method, path)
    assert set(called) == set(handlers), "every call is on the page"
