"""The life of models, asked of a real Triton and of the node: every answer side by side. Run by hand.

Usage: ``python -m tests.serving_node.repository.compare_lifecycle --triton COMMAND [--ports 20510] [--only WORD]``

COMMAND starts tritonserver: it is called with a model repository, a port P and flags, and serves HTTP on P. Prints
what differs and ends with 1 if anything does. ``--save FILE`` keeps all answers as JSON.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

MODEL = """
import json
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        time.sleep(float(parameters.get("load_seconds", {}).get("string_value", 0)))
        self.seconds = float(parameters.get("seconds", {}).get("string_value", 0))
        if "fail" in parameters:
            raise pb_utils.TritonModelException("told to fail")

    def execute(self, requests):
        time.sleep(self.seconds)
        answers = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", tensor)]))
        return answers
"""
FAILING = MODEL.replace('if "fail" in parameters:', "if True:")
IO = """
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
"""
CPU = "instance_group { kind: KIND_CPU count: %d }\n"


def config(extra: str = "", *, count: int = 1, name: str = "") -> str:
    """Return a config.pbtxt of the model."""
    return (f'name: "{name}"\n' if name else "") + 'backend: "python"\n' + IO + CPU % count + extra


def config_json(**more: Any) -> str:
    """Return the config of the model as JSON."""
    document = {
        "backend": "python",
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        **more,
    }
    return json.dumps(document)


def add(
    repository: Path, name: str, versions: Sequence[int | str] = (1,), text: str | None = None, model: str = MODEL
) -> Path:
    """Write a model folder."""
    for version in versions:
        (repository / name / str(version)).mkdir(parents=True, exist_ok=True)
        (repository / name / str(version) / "model.py").write_text(model)
        # a file where Python would write bytecode, which would make the model look modified
        (repository / name / str(version) / "__pycache__").touch()
    if text is None:
        text = config()
    if text:
        (repository / name / "config.pbtxt").write_text(text)
    return repository / name


def touch(path: Path) -> None:
    """Make a file newer than anything so far."""
    time.sleep(0.02)
    os.utime(path)


@dataclass
class World:
    """One running server with its repositories; what it answered, in order."""

    roots: list[Path]
    port: int
    answers: list[tuple[str, Any]] = field(default_factory=list)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    @property
    def repo(self) -> Path:
        return self.roots[0]

    def call(self, method: str, path: str, document: Any = None, *, raw: bytes | None = None) -> tuple[int, Any]:
        body = raw if raw is not None else (b"" if document is None else json.dumps(document).encode())
        url = f"http://127.0.0.1:{self.port}{path}"
        answer = httpx2.request(method, url, content=body, timeout=60, trust_env=False, verify=False)
        text = answer.text
        for number, root in enumerate(self.roots):
            text = text.replace(str(root), f"<repo{number}>")
        text = re.sub(r"/tmp/[A-Za-z0-9_.-]+", "<temp>", text)
        try:
            return answer.status_code, json.loads(text) if text else None
        except ValueError:
            return answer.status_code, text

    def note(self, label: str, answer: Any) -> Any:
        self.answers.append((label, answer))
        return answer

    def load(self, name: str, note: str = "", **parameters: Any) -> None:
        document = {"parameters": parameters} if parameters else None
        self.note(f"load {name} {note}", self.call("POST", f"/v2/repository/models/{name}/load", document))

    def load_later(self, name: str, **parameters: Any) -> Future[tuple[int, Any]]:
        document = {"parameters": parameters} if parameters else None
        return self.threads.submit(self.call, "POST", f"/v2/repository/models/{name}/load", document)

    def unload(self, name: str, note: str = "", **parameters: Any) -> None:
        document = {"parameters": parameters} if parameters else None
        self.note(f"unload {name} {note}", self.call("POST", f"/v2/repository/models/{name}/unload", document))

    def rows(self) -> list[dict[str, Any]]:
        status, rows = self.call("POST", "/v2/repository/index")
        assert status == 200, rows
        return sorted(rows, key=lambda row: (row["name"], int(row.get("version", 0)), row.get("state", "")))

    def index(self, note: str = "") -> None:
        """Note the index once nothing loads or unloads any more."""
        self.settle()
        self.note(f"index {note}", self.rows())

    def index_now(self, note: str = "") -> None:
        self.note(f"index now {note}", self.rows())

    def settle(self) -> None:
        """Wait until nothing loads or unloads."""
        self.until(lambda: not any(row.get("state") in ("LOADING", "UNLOADING") for row in self.rows()))

    def ready(self, *names: str) -> None:
        self.settle()
        self.note("server ready", self.call("GET", "/v2/health/ready"))
        for name in names:
            self.note(f"ready {name}", self.call("GET", f"/v2/models/{name}/ready"))

    def infer(self, name: str, note: str = "") -> None:
        self.note(f"infer {name} {note}", self.infer_now(name))

    def infer_now(self, name: str) -> tuple[int, Any]:
        tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
        return self.call("POST", f"/v2/models/{name}/infer", {"inputs": [tensor]})

    def infer_later(self, name: str) -> Future[tuple[int, Any]]:
        return self.threads.submit(self.infer_now, name)

    def counts(self, name: str) -> None:
        status, document = self.call("GET", f"/v2/models/{name}/stats")
        if status == 200:
            document = {row["version"]: row["inference_count"] for row in document["model_stats"]}
        self.note(f"counts {name}", (status, document))

    def config(self, name: str, *keys: str) -> None:
        status, document = self.call("GET", f"/v2/models/{name}/config")
        if status == 200:
            document = {key: document.get(key) for key in keys}
        self.note(f"config {name}", (status, document))

    def metadata(self, name: str) -> None:
        status, document = self.call("GET", f"/v2/models/{name}")
        if status == 200:
            document = document["versions"]
        self.note(f"metadata {name}", (status, document))

    def until(self, holds: Callable[[], Any], seconds: float = 20.0) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.05)
        return False


@dataclass(frozen=True)
class Scenario:
    """Flags, what is in the repositories before the start, and what is asked then."""

    name: str
    flags: tuple[str, ...]
    build: Callable[[list[Path]], None]
    steps: Callable[[World], None]
    repositories: int = 1
    fails: bool = False


EXPLICIT = ("--model-control-mode=explicit",)


def _three(roots: list[Path]) -> None:
    add(roots[0], "a")
    add(roots[0], "b", (1, 2), config("version_policy { all {} }"))
    add(roots[0], "c", (1, 3, 10), config("version_policy { latest { num_versions: 2 } }"))


def _basics(w: World) -> None:
    w.index("at start")
    w.ready("a", "nowhere")
    for name in ("a", "b", "c"):
        w.load(name)
    w.index()
    w.ready("a", "b", "c", "b/versions/1", "c/versions/1", "c/versions/3", "b/versions/x")
    w.metadata("b")
    w.metadata("c")
    for name in ("a", "b", "b/versions/1", "b/versions/2", "b/versions/3", "c"):
        w.infer(name)
    w.counts("b")
    w.load("b", "unmodified")
    w.counts("b")
    touch(w.repo / "b" / "2" / "model.py")
    w.load("b", "with a touched file")
    w.counts("b")
    w.infer("b")
    w.unload("a")
    w.ready("a")
    w.infer("a", "after unload")
    w.metadata("a")
    w.config("a", "name")
    w.counts("a")
    w.index("after unload")
    w.unload("a", "again")
    w.unload("never")
    w.load("a", "again")
    w.infer("a")
    w.note("ready only", w.call("POST", "/v2/repository/index", {"ready": True}))
    w.note("ready as text", w.call("POST", "/v2/repository/index", {"ready": "true"}))


def _strange_names(w: World) -> None:
    for name in (
        "nowhere",
        "%20",
        "..",
        "a%2Fb",
        "%2E%2E%2Fa",
        "a%20",
        "%20a",
        "config.pbtxt",
        ".hidden",
        "a%5Cb",
        ".",
    ):
        w.load(name)
        w.unload(name)
    w.index()
    w.note("other repository", w.call("POST", "/v2/repository/r/models/a/load"))
    w.note("other repository", w.call("POST", "/v2/repository/r/models/a/unload"))
    w.note("other repository", w.call("POST", "/v2/repository/r/index"))
    w.note("bad JSON", w.call("POST", "/v2/repository/models/a/load", raw=b"{"))
    w.note("parameters no object", w.call("POST", "/v2/repository/models/a/load", {"parameters": 1}))
    w.note("parameter no text", w.call("POST", "/v2/repository/models/a/load", {"parameters": {"config": 1}}))
    w.load("a", "unknown parameter", nonsense="x")
    w.unload("a", "dependents no bool", unload_dependents="x")
    w.unload("a", "unknown parameter", nonsense="x")
    w.unload("a", "dependents", unload_dependents=True)
    w.index()


def _versions(roots: list[Path]) -> None:
    root = roots[0]
    add(root, "named", ("1", "02", "x", "7"), config("version_policy { all {} }"))
    add(root, "specific", (1, 2), config("version_policy { specific { versions: [2, 5] } }"))
    add(root, "missing", (1,), config("version_policy { specific { versions: [5] } }"))
    add(root, "empty", (), "")
    (root / "empty").mkdir()
    (root / "empty" / "config.pbtxt").write_text(config())
    add(root, "zero", (0, 1), config("version_policy { all {} }"))
    (root / "file.txt").write_text("x")
    add(root, "misnamed", text=config(name="other"))
    add(root, "detected", text=IO + CPU % 1)
    add(root, "bare", text="")
    add(root, "broken", text="backend: ")
    add(root, "unknown", text='backend: "nonsense"' + IO)
    (root / "model_without" / "1").mkdir(parents=True)
    (root / "own.nonsense" / "1").mkdir(parents=True)


def _version_steps(w: World) -> None:
    w.index("at start")
    for row in list(w.rows()):
        w.load(row["name"])
    w.index()
    w.ready("named", "missing", "empty", "zero")
    w.infer("named")
    w.infer("zero/versions/0")
    w.metadata("zero")
    for row in list(w.rows()):
        w.unload(row["name"])
    w.index("all unloaded")
    w.ready()
    shutil.rmtree(w.repo / "named")
    w.index("folder gone")
    w.load("named", "gone")
    w.index("folder gone")


def _atomic(w: World) -> None:
    w.load("m")
    w.infer("m")
    w.index()
    add(w.repo, "m", (2,), config("version_policy { all {} }"))
    add(w.repo, "m", (3,), config("version_policy { all {} }"), FAILING)
    w.load("m", "one version fails")
    w.index()
    w.ready("m", "m/versions/2", "m/versions/3")
    w.infer("m")
    w.counts("m")
    w.load("m", "one version fails, again")
    w.index()
    shutil.rmtree(w.repo / "m" / "3")
    w.load("m", "mended")
    w.index()
    w.ready("m")
    w.infer("m")
    w.counts("m")
    shutil.rmtree(w.repo / "m" / "1")
    w.load("m", "old version removed")
    w.index()
    w.counts("m")
    (w.repo / "m" / "config.pbtxt").write_text("nonsense {")
    w.load("m", "broken config")
    w.index()
    w.infer("m")
    (w.repo / "m" / "config.pbtxt").write_text(config(name="other"))
    w.load("m", "another name")
    w.index()
    (w.repo / "m" / "config.pbtxt").write_text(config("max_batch_size: -1"))
    w.load("m", "bad batch size")
    (w.repo / "m" / "config.pbtxt").write_text(config('parameters { key: "fail" value { string_value: "1" } }'))
    w.load("m", "fails while it serves")
    w.index()
    w.infer("m")
    w.ready("m")
    w.unload("m")
    w.index()
    w.load("m", "fails from nothing")
    w.index()
    w.ready("m")
    w.infer("m")
    w.unload("m")
    w.index("failed, then unloaded")
    w.ready("m")
    shutil.rmtree(w.repo / "m")
    w.load("m", "folder gone")
    w.index()


def _override(w: World) -> None:
    w.load("m", "config override", config=config_json(max_batch_size=0, parameters={"k": {"string_value": "v"}}))
    w.config("m", "name", "max_batch_size", "parameters")
    w.infer("m")
    w.load("m", "plain: the override stays")
    w.counts("m")
    w.config("m", "parameters")
    w.load("m", "the same override again", config=config_json(parameters={"k": {"string_value": "v"}}))
    w.counts("m")
    w.load("m", "unknown field", config=config_json(nonsense=1))
    w.load("m", "no JSON", config="{")
    w.load("m", "wrong name", config=config_json(name="other"))
    w.load("m", "empty", config="")
    w.load("m", "empty object", config="{}")
    w.config("m", "parameters", "backend")
    w.infer("m")
    w.index()
    w.load("m", "bad batch", config=config_json(max_batch_size=-2))
    w.load("m", "fails", config=config_json(parameters={"fail": {"string_value": "1"}}))
    w.infer("m")
    w.index()
    w.load("m", "plain after a failed override")
    w.config("m", "parameters")
    touch(w.repo / "m" / "config.pbtxt")
    w.load("m", "plain: the file is newer now")
    w.config("m", "parameters")
    w.load("nowhere", "config alone", config=config_json())
    model = base64.b64encode(MODEL.encode()).decode()
    w.load("m", "file without config", **{"file:7/model.py": model})
    w.load("m", "file override", config=config_json(), **{"file:7/model.py": model})
    w.index()
    w.metadata("m")
    w.infer("m")
    w.load("m", "plain: from the disk again")
    w.index()
    w.infer("m")
    w.load("fresh", "file override of an unknown name", config=config_json(), **{"file:1/model.py": model})
    w.index()
    w.infer("fresh")
    w.ready("fresh")
    w.load("fresh", "plain, unknown on disk")
    w.infer("fresh")
    w.unload("fresh")
    w.index()
    for path in ("../x", "1/../../x", "/etc/x", "..", "", "1"):
        w.load("m", f"file at {path!r}", config=config_json(), **{f"file:{path}": model})
    w.load("m", "no base64", config=config_json(), **{"file:1/model.py": "*"})
    w.load("m", "file fails", config=config_json(), **{"file:1/model.py": base64.b64encode(FAILING.encode()).decode()})
    w.index()
    w.infer("m")
    w.unload("m")
    w.load("m", "plain after unload")
    w.config("m", "parameters")


def _in_place(w: World) -> None:
    w.load("m")
    w.infer("m")
    w.counts("m")
    touch(w.repo / "m" / "config.pbtxt")
    (w.repo / "m" / "config.pbtxt").write_text(config(count=3))
    w.load("m", "three instances")
    w.counts("m")
    w.config("m", "instance_group")
    for _ in range(3):
        w.infer("m")
    (w.repo / "m" / "config.pbtxt").write_text(config())
    w.load("m", "one instance")
    w.counts("m")
    w.config("m", "instance_group")
    w.infer("m")
    (w.repo / "m" / "config.pbtxt").write_text(
        config().replace(
            CPU % 1,
            'instance_group { name: "left" kind: KIND_CPU count: 1 }\n'
            'instance_group { name: "right" kind: KIND_CPU count: 2 }\n',
        )
    )
    w.load("m", "two groups")
    w.counts("m")
    w.config("m", "instance_group")
    add(w.repo, "m", (2,), config("version_policy { all {} }"))
    w.load("m", "another version, another policy")
    w.counts("m")
    w.index()
    w.infer("m/versions/1")
    (w.repo / "m" / "config.pbtxt").write_text(config("version_policy { specific { versions: [1] } }"))
    w.load("m", "version 1 only")
    w.counts("m")
    w.index()
    (w.repo / "m" / "config.pbtxt").write_text(
        config("version_policy { specific { versions: [1] } }\nmax_batch_size: 0")
    )
    w.load("m", "the same in other words")
    w.counts("m")
    (w.repo / "m" / "config.pbtxt").write_text(
        config('version_policy { specific { versions: [1] } }\nparameters { key: "k" value { string_value: "v" } }')
    )
    w.load("m", "another parameter: a reload")
    w.counts("m")
    w.infer("m")
    (w.repo / "m" / "notes.txt").write_text("x")
    w.load("m", "another file beside the config")
    w.counts("m")
    w.load(
        "m",
        "override that changes instances only",
        config=config_json(
            version_policy={"specific": {"versions": [1]}},
            parameters={"k": {"string_value": "v"}},
            instance_group=[{"kind": "KIND_CPU", "count": 2}],
        ),
    )
    w.counts("m")
    w.config("m", "instance_group")


def _slow(roots: list[Path]) -> None:
    add(roots[0], "slow", text=config('parameters { key: "seconds" value { string_value: "1.0" } }'))
    add(roots[0], "late", text=config('parameters { key: "load_seconds" value { string_value: "1.5" } }'))


def _running(w: World) -> None:
    w.load("slow")
    running = w.infer_later("slow")
    time.sleep(0.4)
    w.unload("slow", "while a request runs")
    w.index_now("while a request runs")
    w.infer("slow", "after unload")
    w.infer("slow/versions/1", "after unload")
    for name in ("slow", "slow/versions/1"):
        w.note(f"ready {name}", w.call("GET", f"/v2/models/{name}/ready"))
    w.note("server ready", w.call("GET", "/v2/health/ready"))
    w.note("the running one", running.result())
    w.index()
    loading = w.load_later("late")
    time.sleep(0.8)
    w.index_now("while it loads")
    w.infer("late", "while it loads")
    w.infer("late/versions/1", "while it loads")
    w.note("server ready", w.call("GET", "/v2/health/ready"))
    second = w.load_later("late")
    w.note("first load", loading.result())
    w.note("second load", second.result())
    w.index()
    touch(w.repo / "late" / "1" / "model.py")
    loading = w.load_later("late")
    time.sleep(0.8)
    w.index_now("while it reloads")
    w.infer("late", "while it reloads")
    w.note("server ready", w.call("GET", "/v2/health/ready"))
    w.note("reload", loading.result())
    touch(w.repo / "late" / "1" / "model.py")
    loading = w.load_later("late")
    time.sleep(0.5)
    w.unload("late", "while it reloads")
    w.note("reload that is unloaded", loading.result())
    w.index()


def _two(roots: list[Path]) -> None:
    add(roots[0], "same")
    add(roots[1], "same")
    add(roots[0], "left")
    add(roots[1], "right")


def _duplicates(w: World) -> None:
    w.index("at start")
    w.ready("same", "left", "right")
    w.infer("same")
    w.load("same")
    w.load("left")
    w.load("right")
    w.index()
    w.ready()
    shutil.rmtree(w.roots[1] / "same")
    w.load("same", "now alone")
    w.index()
    w.infer("same")
    add(w.roots[1], "same")
    w.load("same", "twice again")
    w.index()
    w.infer("same")
    w.ready("same")
    w.unload("same")
    w.index()


def _look(*names: str) -> Callable[[World], None]:
    def steps(w: World) -> None:
        w.index("at start")
        w.ready(*names)
        for name in names:
            w.infer(name)
        w.load(names[0] if names else "a")
        w.unload(names[0] if names else "a")
        w.index()

    return steps


def _polling(w: World) -> None:
    w.index("at start")
    w.load("a")
    w.unload("a")
    add(w.repo, "new")
    w.until(lambda: w.call("GET", "/v2/models/new/ready")[0] == 200)
    w.index("a new model")
    w.infer("a")
    w.infer("new")
    add(w.repo, "a", (2,))
    w.until(lambda: w.call("GET", "/v2/models/a/versions/2/ready")[0] == 200)
    w.index("a new version")
    w.counts("a")
    shutil.rmtree(w.repo / "new")
    w.until(lambda: w.call("GET", "/v2/models/new/ready")[0] != 200)
    time.sleep(1.5)
    w.index("a model removed")
    w.infer("new")
    w.ready()
    add(w.repo, "bad", model=FAILING)
    w.until(lambda: any(row["name"] == "bad" and row.get("state") == "UNAVAILABLE" for row in w.rows()))
    w.index("a failing model")
    w.ready()
    add(w.repo, "bad")
    w.until(lambda: w.call("GET", "/v2/models/bad/ready")[0] == 200)
    w.index("mended")
    w.ready()
    (w.repo / "b" / "config.pbtxt").write_text(config(count=2))
    w.infer("b")
    time.sleep(2.5)
    w.config("b", "instance_group")
    w.counts("b")
    (w.repo / "b" / "config.pbtxt").write_text("nonsense")
    time.sleep(2.5)
    w.index("a broken config")
    w.infer("b")
    w.ready()


def _custom(roots: list[Path]) -> None:
    for name in ("with", "without"):
        add(roots[0], name)
    (roots[0] / "with" / "configs").mkdir()
    text = config('parameters { key: "k" value { string_value: "custom" } }')
    (roots[0] / "with" / "configs" / "h100.pbtxt").write_text(text)
    (roots[0] / "with" / "configs" / "other.pbtxt").write_text(config())
    add(roots[0], "only", text="")
    (roots[0] / "only" / "configs").mkdir()
    (roots[0] / "only" / "configs" / "h100.pbtxt").write_text(text)


def _custom_steps(w: World) -> None:
    for name in ("with", "without", "only"):
        w.load(name)
        w.config(name, "parameters")
        w.infer(name)
    touch(w.repo / "with" / "config.pbtxt")
    w.load("with", "the other config touched")
    w.counts("with")
    w.load("with", "override", config=config_json())
    w.config("with", "parameters")
    w.index()


def _namespaces(w: World) -> None:
    w.index("at start")
    w.ready("same", "left", "right")
    w.infer("same")
    w.infer("left")
    w.metadata("same")
    w.metadata("left")
    w.config("same", "name")
    w.counts("same")
    w.counts("left")
    w.load("same")
    w.index()
    w.infer("same")
    w.load("left")
    w.load("nowhere")
    w.infer("nowhere")
    w.metadata("nowhere")
    w.ready("nowhere")
    w.unload("same")
    w.index()
    w.infer("same")
    w.ready("same")
    shutil.rmtree(w.roots[1] / "same")
    w.load("same", "in one place")
    w.index()
    w.infer("same")
    w.ready("same")


def _one(roots: list[Path]) -> None:
    add(roots[0], "m")


def _failing(roots: list[Path]) -> None:
    add(roots[0], "m", model=FAILING)
    add(roots[0], "ok")


def _unreadable(roots: list[Path]) -> None:
    add(roots[0], "m", text="nonsense {")
    add(roots[0], "ok")


def _empty(roots: list[Path]) -> None:
    (roots[0] / "m").mkdir()
    add(roots[0], "ok")


SCENARIOS = (
    Scenario("explicit", EXPLICIT, _three, _basics),
    Scenario("strange names", EXPLICIT, _three, _strange_names),
    Scenario("versions", EXPLICIT, _versions, _version_steps),
    Scenario("atomic", EXPLICIT, _one, _atomic),
    Scenario("override", EXPLICIT, _one, _override),
    Scenario("in place", EXPLICIT, _one, _in_place),
    Scenario("running", EXPLICIT, _slow, _running),
    Scenario("two repositories", EXPLICIT, _two, _duplicates, repositories=2),
    Scenario("two repositories, all", ("--exit-on-error=false",), _two, _look("left", "same"), repositories=2),
    Scenario("none", (), _three, _look("a", "b", "c")),
    Scenario("load two", (*EXPLICIT, "--load-model=a", "--load-model=c"), _three, _look("a", "b", "c")),
    Scenario("load all", (*EXPLICIT, "--load-model=*"), _three, _look("a", "b", "c")),
    Scenario(
        "load unknown, stay",
        (*EXPLICIT, "--load-model=a", "--load-model=zz", "--exit-on-error=false"),
        _three,
        _look("a", "zz"),
    ),
    Scenario("load unknown", (*EXPLICIT, "--load-model=zz"), _three, _look("a"), fails=True),
    Scenario("failing", (), _failing, _look("m"), fails=True),
    Scenario(
        "failing, stay",
        ("--exit-on-error=false",),
        _failing,
        _look("m", "ok"),
    ),
    Scenario(
        "failing, stay, lenient",
        ("--exit-on-error=false", "--strict-readiness=false"),
        _failing,
        _look("m", "ok"),
    ),
    Scenario(
        "unreadable, stay",
        ("--exit-on-error=false",),
        _unreadable,
        _look("m", "ok"),
    ),
    Scenario(
        "empty folder, stay",
        ("--exit-on-error=false",),
        _empty,
        _look("m", "ok"),
    ),
    Scenario("poll", ("--model-control-mode=poll", "--repository-poll-secs=1"), _three, _polling),
    Scenario("custom configs", (*EXPLICIT, "--model-config-name=h100"), _custom, _custom_steps),
    Scenario(
        "namespaces",
        ("--model-namespacing=true", "--model-control-mode=explicit", "--load-model=*"),
        _two,
        _namespaces,
        repositories=2,
    ),
)


def play(scenario: Scenario, command: Sequence[str], port: int) -> list[tuple[str, Any]]:
    """Start a server, go through the scenario, stop the server; return all answers."""
    with tempfile.TemporaryDirectory(prefix="lifecycle-") as folder:
        roots = [Path(folder) / f"repo{number}" for number in range(scenario.repositories)]
        for root in roots:
            root.mkdir()
        scenario.build(roots)
        flags = [*scenario.flags, *(f"--model-repository={root}" for root in roots[1:])]
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, str(roots[0]), str(port), *flags],
                stdout=output,
                stderr=output,
                start_new_session=True,
                # bytecode written beside a model would make it look modified
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        world = World(roots, port)
        try:
            if scenario.fails:
                world.note("exit status", process.wait(60))
                return world.answers
            if not world.until(lambda: process.poll() is not None or _lives(world), 60) or process.poll() is not None:
                world.note("start", ("did not start", process.poll()))
                sys.stderr.write(log.read_text(errors="replace")[-3000:])
                return world.answers
            scenario.steps(world)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                world.note("exit status", process.wait(60))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            kept = os.environ.get("KEEP_LOGS")
            if kept:
                target = Path(kept) / f"{scenario.name.replace(' ', '-')}-{port}.log"
                shutil.copy(log, target)
        return world.answers


def _lives(world: World) -> bool:
    try:
        return world.call("GET", "/v2/health/live")[0] == 200
    except httpx2.TransportError:
        return False


def node_command() -> list[str]:
    """Return a command that starts the node as the Triton command does: repository, port, flags."""
    script = (
        'repo="$1"; port="$2"; shift 2; exec "$0" -m serving_node --model-repository="$repo" '
        "--http-address=127.0.0.1 --grpc-address=127.0.0.1 --http-port=$port --grpc-port=$((port+1)) "
        '--metrics-port=$((port+2)) "$@"'
    )
    return ["bash", "-c", script, sys.executable]


def main() -> int:
    """Play every scenario on both servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triton", help="command that starts tritonserver")
    parser.add_argument("--ports", type=int, default=20510)
    parser.add_argument("--only", default="")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path, help="answers of Triton saved before, instead of --triton")
    chosen = parser.parse_args()
    saved = json.loads(chosen.against.read_text()) if chosen.against else {}
    kept: dict[str, Any] = dict(saved)
    different = total = 0
    for scenario in SCENARIOS:
        if chosen.only not in scenario.name:
            continue
        theirs = saved.get(scenario.name)
        if chosen.triton:
            theirs = play(scenario, shlex.split(chosen.triton), chosen.ports)
            kept[scenario.name] = theirs
            if chosen.save:
                chosen.save.write_text(json.dumps(kept, indent=1))
        if chosen.triton and not chosen.against:
            continue
        ours = play(scenario, node_command(), chosen.ports + 10)
        theirs = json.loads(json.dumps(theirs or []))
        ours = json.loads(json.dumps(ours))
        for number in range(max(len(ours), len(theirs))):
            left = theirs[number] if number < len(theirs) else None
            right = ours[number] if number < len(ours) else None
            total += 1
            if left != right:
                different += 1
                sys.stdout.write(
                    f"{scenario.name} #{number}\n  Triton {json.dumps(left)}\n  node   {json.dumps(right)}\n"
                )
    sys.stdout.write(f"{total} answers, {different} differ\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
