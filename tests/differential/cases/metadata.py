"""What servers say of themselves and of models: health, metadata, readiness, completed configurations."""

from __future__ import annotations

from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.differential.steps import Case, Grpc, Http
from tests.differential.tensors import flat, http_path
from tests.differential.views import server_version

_MODELS = (
    "add_sub",
    "plain",
    "types",
    "optional",
    "reshaped",
    "ragged",
    "repeat",
    "v_all",
    "v_two",
    "v_absent",
    "several",
    "warm",
    "scores",
    "sleep_queue",
    "sleep_timeout",
    "sleep_priority",
    "complete_all",
    "complete_no_batch",
    "complete_optional",
    "complete_two_inputs",
    "complete_dynamic",
    "complete_decoupled",
    "complete_config",
    "complete_partly",
    "complete_scheduler",
    "complete_bare",
    "tagged",
    "sequence_direct",
    "sequence_oldest",
    "ensemble",
)


def _model(name: str, version: str = "", verbs: tuple[str, ...] = ("", "config", "ready"), **more: Any) -> list[Case]:
    id = name + (f"-{version}" if version else "")
    rpcs = {
        "": ("ModelMetadata", pb.ModelMetadataRequest),
        "config": ("ModelConfig", pb.ModelConfigRequest),
        "ready": ("ModelReady", pb.ModelReadyRequest),
    }
    models = more.pop("models", (name,))
    cases = []
    for verb in verbs:
        rpc, request = rpcs[verb]
        title = verb or "metadata"
        cases.append(Case(f"{title}-{id}-http", (Http("GET", http_path(name, version, verb)),), models, **more))
        cases.append(Case(f"{title}-{id}-grpc", (Grpc(rpc, request(name=name, version=version)),), models, **more))
    return cases


CASES = flat(
    Case("server-metadata-http", (Http("GET", "/v2", view=server_version),)),
    Case("server-metadata-grpc", (Grpc("ServerMetadata", pb.ServerMetadataRequest(), view=server_version),)),
    *(Case(f"server-{word}-http", (Http("GET", f"/v2/health/{word}"),)) for word in ("live", "ready")),
    Case("server-live-grpc", (Grpc("ServerLive", pb.ServerLiveRequest()),)),
    Case("server-ready-grpc", (Grpc("ServerReady", pb.ServerReadyRequest()),)),
    *(_model(name, verbs=("", "config")) for name in _MODELS),
    _model("add_sub", "1"),
    _model("add_sub", verbs=("ready",)),
    *(_model("v_all", version) for version in ("2", "7", "0", "abc", "-1", "01")),
    *(_model("v_two", version) for version in ("1", "2")),
    _model("v_odd", verbs=("",)),
    _model("v_some", verbs=("",)),
    _model("nobody", models=()),
    _model("nobody", "3", models=()),
    _model("nobody", "abc", models=()),
    _model("life_never", models=()),
    Case("metadata-empty-name-grpc", (Grpc("ModelMetadata", pb.ModelMetadataRequest()),)),
    Case("ready-empty-name-grpc", (Grpc("ModelReady", pb.ModelReadyRequest()),)),
    Case("config-empty-name-grpc", (Grpc("ModelConfig", pb.ModelConfigRequest()),)),
)
