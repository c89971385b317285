"""The registry with years of rows in it over MLflow's tracking server with as many, by one client, call by call.

Both are real servers on this machine: ``flotilla up`` on its embedded PostgreSQL, ``mlflow server`` on its default
SQLite, each asked over a kept connection, in turn. MLflow lives in an environment of its own, made at the first run.
Rows: 200 models, 20,000 versions; ours also holds files, checks, configs and a million audit events.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg

from benchmarks.mlflow_peer import mlflow_running
from benchmarks.options import Options
from benchmarks.product import product_running
from benchmarks.volume import Volume, fill
from flotilla.sdk import Flotilla

_MODEL, _NUMBER = "volume-7", 77


@dataclass(frozen=True, slots=True)
class Call:
    """One comparison: what is asked of us, and what of MLflow; None where MLflow has nothing like it."""

    name: str
    ours: str
    theirs: str | None = None
    is_page: bool = False


_OURS = f"/api/v1/projects/default/models/{_MODEL}/"
_THEIRS = "/api/2.0/mlflow/"
_LIST = "registered-models/search?max_results=100"
_ONE = f"registered-models/get?name={_MODEL}"
_VERSIONS = f"model-versions/search?max_results=100&filter=name%3D'{_MODEL}'"
_VERSION = f"model-versions/get?name={_MODEL}&version={_NUMBER}"
CALLS = (
    Call("list 100 models", "/api/v1/projects/default/models/?page_size=100", _LIST),
    Call("one model", _OURS, _ONE),
    Call("list 100 versions", f"{_OURS}versions/?page_size=100", _VERSIONS),
    Call("one version", f"{_OURS}versions/{_NUMBER}/", _VERSION),
    Call("page of models", "/p/default/models/", _LIST, True),
    Call("page of a model", f"/p/default/models/{_MODEL}/", _ONE, True),
    Call("page of versions", f"/p/default/models/{_MODEL}/versions/", _VERSIONS, True),
    Call("page of a version", f"/p/default/models/{_MODEL}/versions/{_NUMBER}/", _VERSION, True),
    Call("files of a version", f"{_OURS}versions/{_NUMBER}/files/"),
    Call("checks of a version", f"{_OURS}versions/{_NUMBER}/checks/"),
    Call("configs", f"{_OURS}configs/"),
    Call("newest of a million events", "/api/v1/audit/?page_size=100"),
    Call("search in a million events", "/api/v1/audit/?q=volume-7%20v77"),
    Call("page of the audit log", "/audit/", None, True),
)


def run(options: Options) -> None:
    """Print p50 and p95 in milliseconds of both, and the ratio of the p95."""
    volume = Volume(audit_events=20_000) if options.quick else Volume()
    rounds = 3 if options.quick else 10
    with (
        tempfile.TemporaryDirectory(prefix="flotilla-bench-") as scratch,
        mlflow_running(options.port_base + 50, Path(scratch), volume) as theirs,
        _flotilla_running(options.port_base + 60, Path(scratch) / "data", volume) as (api, pages),
    ):
        for call in CALLS:
            ours: list[float] = []
            other: list[float] = []
            for turn in range(rounds + 1):
                mine = _times(pages if call.is_page else api, call.ours)
                peer = _times(theirs, _THEIRS + call.theirs) if call.theirs else []
                if turn:  # the first warms up
                    ours, other = ours + mine, other + peer
            _print(call.name, ours, other)


def _times(client: httpx2.Client, path: str, count: int = 20) -> list[float]:
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        answer = client.get(path)
        taken.append((time.perf_counter() - start) * 1000)
        if answer.status_code != 200:
            sys.exit(f"{path}: {answer.status_code} {answer.text[:300]}")
    return taken


def _print(name: str, ours: list[float], theirs: list[float]) -> None:
    def middle_and_p95(values: list[float]) -> tuple[float, float]:
        return statistics.median(values), statistics.quantiles(values, n=20)[-1]

    p50, p95 = middle_and_p95(ours)
    line = f"  {name:28} Flotilla p50 {p50:6.1f} ms p95 {p95:6.1f} ms"
    if theirs:
        peer50, peer95 = middle_and_p95(theirs)
        line += f" | MLflow p50 {peer50:6.1f} ms p95 {peer95:6.1f} ms | p95 Flotilla/MLflow {p95 / peer95:.2f}"
    print(line, flush=True)


@contextlib.contextmanager
def _flotilla_running(port: int, data: Path, volume: Volume) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """Start the product, push one model, copy it, and yield a client with a token and one signed in."""
    with product_running(port, data) as product:
        _push(product.url, product.token, data.parent)
        with psycopg.connect(product.environment["DATABASE_URL"]) as database:
            cursor = database.cursor()
            cursor.execute("SELECT id FROM registry_registeredmodel WHERE slug = 'original'")
            (model_id,) = cursor.fetchone() or ("",)
            fill(cursor, str(model_id), volume, lambda text: print(f"  Flotilla: {text}", flush=True))
        with psycopg.connect(product.environment["DATABASE_URL"], autocommit=True) as database:
            # Rows of years were vacuumed long ago; those of a minute ago would be, beside the first calls.
            database.execute("VACUUM (ANALYZE)")
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                database.execute("CHECKPOINT")
        cookie = dict([product.manage("shell", "-c", _SESSION).split("=", 1)])
        headers = {"Authorization": f"Bearer {product.token}"}
        with (
            httpx2.Client(base_url=product.url, headers=headers, timeout=60, trust_env=False) as api,
            httpx2.Client(base_url=product.url, cookies=cookie, timeout=60, trust_env=False) as pages,
        ):
            yield api, pages


_SESSION = (
    "from django.conf import settings; from django.test import Client; from registry.models import User; "
    "c = Client(); c.force_login(User.objects.get(username='demo-author')); "
    "print(settings.SESSION_COOKIE_NAME + '=' + c.cookies[settings.SESSION_COOKIE_NAME].value)"
)


def _push(url: str, token: str, scratch: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    file = scratch / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    with Flotilla(url, token) as client:
        client.push("original", {"model.onnx": file})
