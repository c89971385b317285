"""The life of models: index, load, unload, reload, overrides; and models that do not load."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.differential.models import EXPLICIT, source
from tests.differential.refused_models import REFUSED
from tests.differential.steps import Case, Grpc, Http, Remove, Step, Until, Write
from tests.differential.tensors import T, flat, http_json, http_path
from tests.differential.views import only, rows_of

_ONE = [T("IN", "INT32", [1], [1])]
_CONFIG = EXPLICIT["life"]["config.pbtxt"]


def index(*models: str, body: Any = None, eventually: bool = True) -> Http:
    """Return a look at the index's rows of these models."""
    content = b"" if body is None else json.dumps(body).encode()
    return Http("POST", "/v2/repository/index", content, view=rows_of(*models), eventually=eventually)


def index_grpc(*models: str, **fields: Any) -> Grpc:
    """Return the same look over gRPC."""
    return Grpc("RepositoryIndex", pb.RepositoryIndexRequest(**fields), view=rows_of(*models), eventually=True)


def load(model: str, parameters: Mapping[str, Any] | None = None, body: bytes | None = None) -> Http:
    """Return a load over HTTP."""
    document = b"" if parameters is None else json.dumps({"parameters": parameters}).encode()
    return Http("POST", f"/v2/repository/models/{model}/load", document if body is None else body)


def unload(model: str, body: bytes = b"") -> Http:
    """Return an unload over HTTP."""
    return Http("POST", f"/v2/repository/models/{model}/unload", body)


def load_grpc(model: str, parameters: Mapping[str, Any] | None = None, **fields: Any) -> Grpc:
    """Return a load over gRPC; bytes become bytes_param."""
    message = pb.RepositoryModelLoadRequest(model_name=model, **fields)
    for name, value in (parameters or {}).items():
        kind = {bool: "bool_param", int: "int64_param", bytes: "bytes_param"}.get(type(value), "string_param")
        setattr(message.parameters[name], kind, value)
    return Grpc("RepositoryModelLoad", message)


def unload_grpc(model: str, parameters: Mapping[str, Any] | None = None, **fields: Any) -> Grpc:
    """Return an unload over gRPC."""
    message = pb.RepositoryModelUnloadRequest(model_name=model, **fields)
    for name, value in (parameters or {}).items():
        kind = {bool: "bool_param", int: "int64_param"}.get(type(value), "string_param")
        setattr(message.parameters[name], kind, value)
    return Grpc("RepositoryModelUnload", message)


def _case(id: str, *steps: Step, **more: Any) -> Case:
    return Case(f"life-{id}", steps, **more)


def _own(id: str, steps: Callable[[str], tuple[Step, ...]], base: str = "life", **more: Any) -> Case:
    """Return a case with a model of its own, which nothing is known of before."""
    model = f"life-{id}"
    files = tuple(Write(f"{model}/{path}", text) for path, text in EXPLICIT[base].items())
    return Case(f"life-{id}", (*files, *steps(model)), **more)


def _ready(model: str) -> Http:
    return Http("GET", http_path(model, verb="ready"))


def _shown(model: str) -> Http:
    view = only("max_batch_size", "version_policy", "dynamic_batching", "instance_group")
    return Http("GET", http_path(model, verb="config"), view=view)


def _ask(model: str, version: str = "") -> Http:
    return http_json(model, _ONE, version=version)


def _gone(model: str) -> tuple[Step, Step]:
    return (unload(model), Until(model, "UNAVAILABLE"))


def _config(**more: Any) -> str:
    one = [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}]
    two = [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}]
    return json.dumps({"backend": "python", "input": one, "output": two, **more})


def _loading() -> list[Case]:
    return [
        _own(
            "load-and-unload",
            lambda m: (
                load(m),
                index(m),
                _ready(m),
                _ask(m),
                unload(m),
                Until(m, "UNAVAILABLE"),
                index(m),
                _ready(m),
                _ask(m),
                Http("GET", f"/v2/models/{m}"),
                Http("GET", f"/v2/models/{m}/config"),
            ),
        ),
        _own(
            "load-and-unload-grpc",
            lambda m: (
                load_grpc(m),
                index_grpc(m),
                _ask(m),
                unload_grpc(m),
                Until(m, "UNAVAILABLE"),
                index_grpc(m),
                _ask(m),
            ),
        ),
        _own("load-twice", lambda m: (load(m), load(m), index(m), *_gone(m))),
        _own("unload-twice", lambda m: (load(m), *_gone(m), unload(m), index(m))),
        _case("unload-never-loaded", unload("life_never"), index("life_never")),
        _case("unload-unknown", unload("nobody"), unload_grpc("nobody")),
        _case("load-unknown", load("nobody"), load_grpc("nobody")),
        _case("load-empty-name", load_grpc(""), unload_grpc("")),
        _case("load-space-name", load_grpc(" ")),
        *(
            _case(f"load-name-{id}", load_grpc(name), unload_grpc(name))
            for id, name in (
                ("dots", ".."),
                ("parent", "../life"),
                ("slash", "life/1"),
                ("absolute", "/etc"),
                ("dot", "."),
            )
        ),
        _case("load-name-encoded", load("..%2Flife"), load("%2e%2e")),
        _own(
            "load-of-repository", lambda m: (Http("POST", f"/v2/repository/models/{m}/load", b'{"repository": "x"}'),)
        ),
        _own("load-named-repository", lambda m: (Http("POST", f"/v2/repository/r/models/{m}/load"),)),
        _own("unload-named-repository", lambda m: (Http("POST", f"/v2/repository/r/models/{m}/unload"),)),
        _own("load-named-repository-grpc", lambda m: (load_grpc(m, repository_name="r"),)),
        _own("unload-named-repository-grpc", lambda m: (unload_grpc(m, repository_name="r"),)),
        _case("index-named-repository", Http("POST", "/v2/repository/r/index", view=rows_of("life_never"))),
        _case("index-named-repository-grpc", index_grpc("life_never", repository_name="r")),
        _case("index-never-loaded", index("life_never"), index_grpc("life_never")),
        _case("index-versions", index("v_all", "v_two"), index_grpc("v_all", "v_two"), models=("v_all", "v_two")),
        _case(
            "index-ready",
            index("life_never", "v_all", body={"ready": True}),
            index_grpc("life_never", "v_all", ready=True),
            models=("v_all",),
        ),
        _case("index-ready-false", index("life_never", "v_all", body={"ready": False}), models=("v_all",)),
        *(
            _case(f"index-body-{id}", Http("POST", "/v2/repository/index", body, view=rows_of("life_never")))
            for id, body in (
                ("ready-text", b'{"ready": "yes"}'),
                ("ready-number", b'{"ready": 1}'),
                ("ready-null", b'{"ready": null}'),
                ("array", b"[]"),
                ("not-json", b"hello"),
                ("unknown", b'{"colour": 1}'),
                ("empty-object", b"{}"),
            )
        ),
        *(
            _own(f"load-body-{id}", lambda m, body=body: (load(m, body=body),))
            for id, body in (
                ("not-json", b"hello"),
                ("array", b"[]"),
                ("parameters-array", b'{"parameters": []}'),
                ("config-number", b'{"parameters": {"config": 1}}'),
                ("config-object", b'{"parameters": {"config": {}}}'),
                ("unknown", b'{"parameters": {"colour": "red"}}'),
                ("file-number", b'{"parameters": {"file:1/x": 1}}'),
            )
        ),
        *(
            _case(f"unload-body-{id}", unload("life_never", body))
            for id, body in (
                ("not-json", b"hello"),
                ("unknown", b'{"parameters": {"colour": "red"}}'),
                ("dependents-text", b'{"parameters": {"unload_dependents": "yes"}}'),
                ("dependents", b'{"parameters": {"unload_dependents": true}}'),
            )
        ),
        _own("load-grpc-unknown-parameter", lambda m: (load_grpc(m, {"colour": "red"}),)),
        _own("load-grpc-config-bytes", lambda m: (load_grpc(m, {"config": b"{}"}),)),
        _own("load-grpc-file-text", lambda m: (load_grpc(m, {"config": _config(), "file:1/model.py": "text"}),)),
        _case("unload-grpc-unknown-parameter", unload_grpc("life_never", {"colour": "red"})),
        _case("unload-grpc-dependents-text", unload_grpc("life_never", {"unload_dependents": "yes"})),
        _case("unload-grpc-dependents", unload_grpc("life_never", {"unload_dependents": True})),
    ]


def _overrides() -> list[Case]:
    model = base64.b64encode(source("version").encode()).decode()
    broken = base64.b64encode(b"raise RuntimeError('from a file')\n").decode()
    files = {"config": _config(), "file:3/model.py": model}
    lenient = (
        '{backend: "python", max_batch_size: 2, dynamic_batching: {}, '
        'input: [{name: "IN", data_type: "type_int32", dims: [1]}], '
        'output: [{name: "OUT", data_type: "TYPE_INT32", dims: [1]}]}'
    )
    return [
        _own(
            "override",
            lambda m: (
                load(m, {"config": _config(max_batch_size=3)}),
                _shown(m),
                index(m),
                *_gone(m),
                load(m),
                _shown(m),
                *_gone(m),
            ),
        ),
        _own(
            "override-stays",
            lambda m: (
                # what Python leaves beside a model at its first load counts as a change of the model there
                load(m),
                *_gone(m),
                load(m, {"config": _config(max_batch_size=3)}),
                load(m),
                _shown(m),
                load(m, {"config": _config(max_batch_size=5)}),
                _shown(m),
                *_gone(m),
            ),
        ),
        _own("override-grpc", lambda m: (load_grpc(m, {"config": _config(max_batch_size=3)}), _shown(m), *_gone(m))),
        _own(
            "override-lenient",
            lambda m: (
                load(m, {"config": lenient}),
                _shown(m),
                *_gone(m),
            ),
        ),
        _own("override-camel-case", lambda m: (load(m, {"config": _config(maxBatchSize=3)}), _shown(m), *_gone(m))),
        _own(
            "override-text-numbers", lambda m: (load(m, {"config": _config(max_batch_size="3")}), _shown(m), *_gone(m))
        ),
        _own(
            "override-version-policy",
            lambda m: (
                load(m, {"config": _config(version_policy={"specific": {"versions": [1]}})}),
                _shown(m),
                index(m),
                _ask(m),
                *_gone(m),
            ),
        ),
        *(
            _own(f"override-bad-{id}", lambda m, text=text: (load(m, {"config": text}), index(m)))
            for id, text in (
                ("not-json", "hello"),
                ("empty", ""),
                ("unknown-field", _config(colour="red")),
                ("null", "null"),
                ("array", "[]"),
                ("wrong-type", _config(max_batch_size="many")),
                ("negative-batch", _config(max_batch_size=-1)),
                ("other-name", _config(name="other")),
                ("other-backend", _config(backend="nothing")),
                ("enum", _config(input=[{"name": "IN", "data_type": "TYPE_X", "dims": [1]}])),
            )
        ),
        _own("override-empty-object", lambda m: (load(m, {"config": "{}"}), _shown(m), *_gone(m))),
        _own(
            "override-bad-keeps-old",
            lambda m: (load(m), load(m, {"config": _config(max_batch_size=-1)}), index(m), _ask(m), *_gone(m)),
        ),
        _own(
            "files",
            lambda m: (load(m, files), index(m), _ask(m), load(m), index(m), _ask(m), *_gone(m)),
            base="life_files",
        ),
        _own(
            "files-grpc",
            lambda m: (
                load_grpc(m, {"config": _config(), "file:3/model.py": source("version").encode()}),
                index(m),
                _ask(m),
                *_gone(m),
            ),
            base="life_files",
        ),
        _own("files-without-config", lambda m: (load(m, {"file:3/model.py": model}), index(m)), base="life_files"),
        _own(
            "files-broken",
            lambda m: (
                load(m, {"config": _config(), "file:3/model.py": broken}),
                index(m),
                load(m),
                _ask(m),
                *_gone(m),
            ),
            base="life_files",
        ),
        _own(
            "files-not-base64", lambda m: (load(m, {"config": _config(), "file:3/model.py": "!!"}),), base="life_files"
        ),
        _own(
            "files-escape",
            lambda m: (load(m, {"config": _config(), "file:../../x/model.py": model}),),
            base="life_files",
        ),
        _own("files-absolute", lambda m: (load(m, {"config": _config(), "file:/tmp/x": model}),), base="life_files"),
        _own("files-no-path", lambda m: (load(m, {"config": _config(), "file:": model}),), base="life_files"),
        _case(
            "files-of-new-model",
            load("life_new", files),
            index("life_new"),
            _ask("life_new"),
            unload("life_new"),
            index("life_new"),
            load("life_new"),
            index("life_new"),
        ),
    ]


def _disk() -> list[Case]:
    bad = "raise RuntimeError('reload fails')\n"
    good = source("version")
    grown = EXPLICIT["life_grows"]["config.pbtxt"]
    counts = only("model_stats")
    return [
        _own("reload-unchanged", lambda m: (load(m), load(m), _ask(m), *_gone(m)), base="life_broken"),
        _own(
            "reload-fails",
            lambda m: (
                load(m),
                Write(f"{m}/1/model.py", bad),
                load(m),
                index(m),
                _ask(m),
                Write(f"{m}/1/model.py", good),
                load(m),
                index(m),
                *_gone(m),
            ),
            base="life_broken",
        ),
        _own(
            "first-load-fails",
            lambda m: (
                Write(f"{m}/1/model.py", bad),
                load(m),
                index(m),
                _ask(m),
                Http("GET", f"/v2/models/{m}/ready"),
                load_grpc(m),
                Write(f"{m}/1/model.py", good),
                load(m),
                *_gone(m),
            ),
            base="life_broken",
        ),
        _own(
            "new-version",
            lambda m: (
                load(m),
                Write(f"{m}/2/model.py", good),
                _ask(m),
                load(m),
                _ask(m),
                index(m, body={"ready": True}),  # the other one is being unloaded, or was
                Remove(f"{m}/2"),
                load(m),
                _ask(m),
                index(m, body={"ready": True}),
                *_gone(m),
            ),
            base="life_grows",
        ),
        _own(
            "config-changes",
            lambda m: (
                load(m),
                Write(f"{m}/config.pbtxt", "max_batch_size: 2\n" + grown),
                load(m),
                _shown(m),
                Write(f"{m}/config.pbtxt", grown),
                load(m),
                _shown(m),
                *_gone(m),
            ),
            base="life_grows",
        ),
        _own(
            "instances-change",
            lambda m: (
                load(m),
                *_gone(m),
                load(m),
                _ask(m),
                Write(f"{m}/config.pbtxt", grown.replace("count: 1", "count: 2")),
                load(m),
                _shown(m),
                Http("GET", http_path(m, verb="stats"), view=lambda a: _success(counts(a)), eventually=True),
                Write(f"{m}/config.pbtxt", grown),
                load(m),
                _shown(m),
                *_gone(m),
            ),
            base="life_grows",
        ),
        _own(
            "config-broken",
            lambda m: (
                load(m),
                Write(f"{m}/config.pbtxt", "input {"),
                load(m),
                index(m),
                _ask(m),
                Write(f"{m}/config.pbtxt", grown),
                load(m),
                *_gone(m),
            ),
            base="life_grows",
        ),
        _case(
            "folder-removed",
            Write("life_temp/config.pbtxt", grown),
            Write("life_temp/1/model.py", good),
            load("life_temp"),
            _ask("life_temp"),
            Remove("life_temp"),
            index("life_temp"),
            load("life_temp"),
            _ask("life_temp"),
            unload("life_temp"),
            index("life_temp"),
        ),
        _case(
            "version-folder-removed",
            Write("life_temp2/config.pbtxt", grown),
            Write("life_temp2/1/model.py", good),
            load("life_temp2"),
            Remove("life_temp2/1"),
            load("life_temp2"),
            _ask("life_temp2"),
            index("life_temp2"),
            *_gone("life_temp2"),
            Remove("life_temp2"),
        ),
    ]


def _success(answer: dict[str, Any]) -> dict[str, Any]:
    rows = [row["inference_stats"]["success"]["count"] for row in answer["json"]["model_stats"]]
    return {"success counts": rows}


def _refused() -> list[Case]:
    """Every model with a mistake: the load's error and the index's row; some over gRPC too."""
    cases: list[Case] = []
    for name in REFUSED:
        # the good version of the two goes after the bad one failed
        settled = (Until(name, "UNAVAILABLE"),) if name == "refused_second_version" else ()
        steps = (load(name), *settled, index(name), *_gone_if_loaded(name))
        cases.append(Case(name.replace("_", "-", 1), steps))
    for name in ("refused_broken_raises", "refused_no_version", "refused_negative_batch"):
        cases.append(Case(f"{name}-grpc".replace("_", "-", 1), (load_grpc(name), index_grpc(name))))
    return cases


def _gone_if_loaded(name: str) -> tuple[Step, ...]:
    return (unload(name), Http("GET", f"/v2/models/{name}/ready", eventually=True))


CASES = flat(_loading(), _overrides(), _disk())
CASES_REFUSED = flat(_refused())
