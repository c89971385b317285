"""Content over a real uvicorn: ranges, and who may read what."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.api.blob_response import read_range
from registry.domain.plans import DeploymentSpec
from registry.services import deployments
from tests.console.conftest import Cast, RunningConsole, join_node

CONTENT = bytes(range(256)) * 8192  # 2 MiB: more than one piece of the store
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ADDRESS = f"/api/v1/blobs/{SHA256}"


@given(st.integers(1, 1000), st.integers(0, 1100), st.integers(0, 1100))
def test_range_lies_inside_the_content(size: int, first: int, last: int) -> None:
    try:
        found = read_range(f"bytes={first}-{last}", size)
    except ValueError:
        assert first >= size
        return
    if found is None:
        assert last < first
    else:
        assert found == (first, min(last + 1, size))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-", (0, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-30", (0, 10)),
        ("bytes=0-1,4-5", None),
        ("bytes=-", None),
        ("pages=1-2", None),
    ],
)
def test_range_header_is_read(header: str | None, expected: tuple[int, int] | None) -> None:
    assert read_range(header, 10) == expected


def deploy(cast: Cast) -> tuple[str, str]:
    """Return the tokens of a node that should load the content and of one that should not."""
    fleet = cast.environment("development", approvals=0)
    _node, loads = join_node(cast, environment="development")
    _other, idle = join_node(cast, "node-2", environment="other")
    version = cast.ready_version(content=CONTENT)
    spec = DeploymentSpec.from_json({"routes": [{"version": 1, "weight": 100}]})
    deployments.deployment_change(model=version.model, fleet=fleet, spec=spec, actor=cast.actor("bob"))
    return loads, idle


def test_node_reads_what_it_should_load_whole_and_in_ranges(console: RunningConsole, shared_cast: Cast) -> None:
    loads, idle = deploy(shared_cast)
    with console.client(loads, Accept="application/octet-stream") as node:
        whole = node.get(ADDRESS)
        assert (whole.status_code, whole.content) == (200, CONTENT)
        assert whole.headers["Content-Length"] == str(len(CONTENT))
        assert whole.headers["Accept-Ranges"] == "bytes"
        middle = node.get(ADDRESS, headers={"Range": "bytes=1048570-1048590"})
        assert (middle.status_code, middle.content) == (206, CONTENT[1048570:1048591])
        assert middle.headers["Content-Range"] == f"bytes 1048570-1048590/{len(CONTENT)}"
        rest = node.get(ADDRESS, headers={"Range": f"bytes={len(CONTENT) - 5}-"})
        assert (rest.status_code, rest.content) == (206, CONTENT[-5:])
        past = node.get(ADDRESS, headers={"Range": f"bytes={len(CONTENT)}-"})
        assert (past.status_code, past.headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")
        head = node.head(ADDRESS)
        assert (head.status_code, head.headers["Content-Length"], head.content) == (200, str(len(CONTENT)), b"")
        assert node.get(ADDRESS, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
        changed = node.get(ADDRESS, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
        assert changed.status_code == 200
        assert node.get("/api/v1/blobs/" + "0" * 64).status_code == 404
    with console.client(idle) as node:
        assert node.get(ADDRESS).status_code == 404


def test_people_read_content_of_their_projects_only(console: RunningConsole, shared_cast: Cast) -> None:
    deploy(shared_cast)
    for name, status in (("vera", 200), ("charlie", 404)):
        with console.client(shared_cast.token(name, "read")) as reader:
            assert reader.get(ADDRESS).status_code == status
    with console.client() as nobody:
        assert nobody.get(ADDRESS).status_code == 401


def test_file_of_a_version_is_downloaded_under_its_name(console: RunningConsole, shared_cast: Cast) -> None:
    shared_cast.ready_version(content=CONTENT)
    address: Any = "/api/v1/projects/wren/models/finch/versions/1/download"
    with console.client(shared_cast.token("vera", "read")) as reader:
        answer = reader.get(address, params={"path": "model.onnx"})
        assert (answer.status_code, answer.content) == (200, CONTENT)
        assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''model.onnx"
        assert reader.get(address, params={"path": "../secret"}).status_code == 404


def test_slow_readers_hold_no_database_connection(console: RunningConsole, shared_cast: Cast) -> None:
    import socket

    from django.db import connection

    loads, _idle = deploy(shared_cast)
    sockets = []
    for _number in range(8):
        reader = socket.create_connection(("127.0.0.1", console.port), timeout=30)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"GET {ADDRESS} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {loads}\r\n\r\n"
        reader.sendall(head.encode())
        assert reader.recv(15).startswith(b"HTTP/1.1 200")
        sockets.append(reader)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        assert cursor.fetchone()[0] <= 3
    for reader in sockets:
        reader.close()
