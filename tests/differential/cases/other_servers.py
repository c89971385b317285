"""Servers with other flags: restricted parts, forwarded headers, no model control; polling."""

from __future__ import annotations

import json
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.differential.models import POLLING, source
from tests.differential.steps import Case, Grpc, Http, Remove, Step, Until, Write
from tests.differential.tensors import T, flat, grpc_raw, http_json, http_path
from tests.differential.views import rows_of, server_version, status_only

_ONE = [T("IN", "INT32", [1], [1])]
_ADMIN, _LOG = {"admin-key": "admin-value"}, {"log-key": "log-value"}
_PREFIX = "triton-grpc-protocol-"


def _guarded(id: str, *steps: Step, **more: Any) -> Case:
    return Case(f"guarded-{id}", steps, profile="guarded", **more)


def _restricted() -> list[Case]:
    index = Http("POST", "/v2/repository/index", view=status_only)

    def http(method: str, path: str, headers: dict[str, str], view: Any = None) -> Http:
        return Http(method, path, b"", headers, view=view)

    def stats(*metadata: tuple[str, str]) -> Grpc:
        request = pb.ModelStatisticsRequest(name="nobody")
        return Grpc("ModelStatistics", request, metadata=metadata)

    return [
        _guarded(
            "index",
            index,
            http("POST", "/v2/repository/index", {}),
            http("POST", "/v2/repository/index", _LOG),
            http("POST", "/v2/repository/index", {"admin-key": "x"}),
            http("POST", "/v2/repository/index", {"Admin-Key": "admin-value"}, status_only),
            http("POST", "/v2/repository/index", _ADMIN, status_only),
        ),
        _guarded(
            "load",
            http("POST", "/v2/repository/models/look/load", {}),
            http("POST", "/v2/repository/models/look/load", _ADMIN),
            http("POST", "/v2/repository/models/look/unload", _ADMIN),
            http("POST", "/v2/repository/models/nobody/load", _ADMIN),
        ),
        _guarded(
            "stats",
            http("GET", "/v2/models/look/stats", {}),
            http("GET", "/v2/models/stats", {}),
            http("GET", "/v2/models/look/stats", _ADMIN, status_only),
        ),
        _guarded(
            "logging",
            http("GET", "/v2/logging", {}),
            http("GET", "/v2/logging", _ADMIN),
            http("GET", "/v2/logging", _LOG),
        ),
        _guarded(
            "open",
            http("GET", "/v2/models/look/config", {}, status_only),
            http("GET", "/v2/health/live", {}),
            http("GET", "/v2/trace/setting", {}, status_only),
            http("GET", "/v2/systemsharedmemory/status", {}),
        ),
        _guarded(
            "grpc-stats",
            stats(),
            stats((_PREFIX + "admin-key", "x")),
            stats(("admin-key", "admin-value")),
            stats((_PREFIX + "admin-key", "admin-value")),
        ),
        _guarded(
            "grpc-index",
            Grpc("RepositoryIndex", pb.RepositoryIndexRequest()),
            Grpc("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="look")),
            Grpc(
                "RepositoryModelLoad",
                pb.RepositoryModelLoadRequest(model_name="look"),
                metadata=((_PREFIX + "admin-key", "admin-value"),),
            ),
            Grpc(
                "RepositoryModelUnload",
                pb.RepositoryModelUnloadRequest(model_name="look"),
                metadata=((_PREFIX + "admin-key", "admin-value"),),
            ),
        ),
        _guarded(
            "grpc-logging",
            Grpc("LogSettings", pb.LogSettingsRequest()),
            Grpc("LogSettings", pb.LogSettingsRequest(), metadata=((_PREFIX + "log-key", "log-value"),)),
        ),
    ]


def _forwarded() -> list[Case]:
    def http(headers: dict[str, str], **more: Any) -> Http:
        return http_json("look", _ONE, headers=headers, **more)

    def grpc(*metadata: tuple[str, str], **more: Any) -> Grpc:
        return grpc_raw("look", _ONE, metadata=metadata, **more)

    return [
        _guarded("forward", http({"x-forward-a": "1", "other": "2"}), grpc(("x-forward-a", "1"), ("other", "2"))),
        _guarded("forward-case", http({"X-Forward-A": "Upper"})),
        _guarded("forward-inside", http({"a-x-forward-b": "1"}), grpc(("a-x-forward-b", "1"))),
        _guarded(
            "forward-over-parameter",
            http({"x-forward-a": "1"}, parameters={"x-forward-a": "body"}),
            grpc(("x-forward-a", "1"), parameters={"x-forward-a": "body"}),
        ),
        _guarded("forward-twice", grpc(("x-forward-a", "1"), ("x-forward-a", "2"))),
        _guarded("forward-generate", Http("POST", "/v2/models/look/generate", b'{"IN": 1}', {"x-forward-a": "1"})),
        _guarded("forward-error", Http("POST", http_path("nobody"), b"{}", {"x-forward-a": "1"})),
    ]


def _flagged() -> list[Case]:
    return [
        _guarded("metadata", Http("GET", "/v2", view=server_version)),
        _guarded("ready", Http("GET", "/v2/health/ready"), Grpc("ServerReady", pb.ServerReadyRequest())),
        _guarded(
            "broken-model",
            Http("GET", "/v2/models/broken/ready"),
            Http("GET", "/v2/models/broken"),
            http_json("broken", [T("HOW", "BYTES", [1], ["x"])]),
            Http("POST", "/v2/repository/index", b"", _ADMIN, view=rows_of("broken", "look")),
        ),
    ]


def _polling() -> list[Case]:
    def index(*models: str) -> Http:
        return Http("POST", "/v2/repository/index", view=rows_of(*models))

    def case(id: str, *steps: Step) -> Case:
        return Case(f"polling-{id}", steps, profile="polling")

    def ask(model: str) -> Http:
        return http_json(model, _ONE)

    config = POLLING["grows"]["config.pbtxt"]
    return [
        case("steady", index("steady"), ask("steady")),
        case(
            "control",
            Http("POST", "/v2/repository/models/steady/load"),
            Http("POST", "/v2/repository/models/steady/unload"),
            Grpc("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="steady")),
            Grpc("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="steady")),
            Http("POST", "/v2/repository/models/nobody/load"),
            Http("POST", "/v2/repository/models/steady/load", json.dumps({"parameters": {"config": "{}"}}).encode()),
        ),
        case(
            "appears",
            Write("comes/1/model.py", source("version")),
            Write("comes/config.pbtxt", config),
            Until("comes", "READY"),
            index("comes"),
            ask("comes"),
        ),
        case(
            "grows",
            ask("grows"),
            Write("grows/2/model.py", source("version")),
            Until("grows", "READY"),
            Http(*_asking("grows"), eventually=True),
        ),
        case("goes", ask("goes"), Remove("goes"), Until("goes", "gone"), ask("goes"), index("goes")),
        case(
            "breaks",
            Write("breaks/1/model.py", "raise RuntimeError('no')\n"),
            Write("breaks/config.pbtxt", config),
            Until("breaks", "UNAVAILABLE"),
            index("breaks"),
            Http("GET", "/v2/health/ready"),
            Write("breaks/1/model.py", source("version")),
            Until("breaks", "READY"),
            ask("breaks"),
            Http("GET", "/v2/health/ready"),
        ),
    ]


def _asking(model: str) -> tuple[str, str, bytes]:
    request = http_json(model, _ONE)
    return request.method, request.path, request.body


CASES = flat(_restricted(), _forwarded(), _flagged(), _polling())
