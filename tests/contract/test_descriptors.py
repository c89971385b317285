"""Our protocol files say the same as Triton's and gRPC's, and live beside Triton's client in one process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2 as triton_config
from tritonclient.grpc import service_pb2 as triton_service

from serving_node.contract.proto import grpc_service_pb2, health_pb2, metrics_pb2, model_config_pb2


def _facts(file: Any) -> dict[str, Any]:
    """Everything about a proto file that a peer can notice, by full name."""
    proto = descriptor_pb2.FileDescriptorProto()
    file.DESCRIPTOR.CopyToProto(proto)
    facts: dict[str, Any] = {"package": proto.package, "syntax": proto.syntax}
    for message in proto.message_type:
        _add_message(facts, message, message.name)
    for enum in proto.enum_type:
        facts[enum.name] = {value.name: value.number for value in enum.value}
    for service in proto.service:
        for method in service.method:
            facts[f"{service.name}/{method.name}"] = (
                method.input_type,
                method.output_type,
                method.client_streaming,
                method.server_streaming,
            )
    return facts


def _add_message(facts: dict[str, Any], message: descriptor_pb2.DescriptorProto, path: str) -> None:
    facts[path] = "map" if message.options.map_entry else "message"
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        facts[f"{path}.{field.name}"] = (field.number, field.label, field.type, field.type_name, field.json_name, oneof)
    for enum in message.enum_type:
        facts[f"{path}.{enum.name}"] = {value.name: value.number for value in enum.value}
    for nested in message.nested_type:
        _add_message(facts, nested, f"{path}.{nested.name}")


@pytest.mark.parametrize(
    ("ours", "tritons"),
    [(model_config_pb2, triton_config), (grpc_service_pb2, triton_service)],
    ids=["config", "service"],
)
def test_every_message_field_enum_and_method_is_tritons(ours: Any, tritons: Any) -> None:
    assert _facts(ours) == _facts(tritons)


def test_field_order_of_model_config_is_tritons() -> None:
    """The order shows in the JSON of ``GET .../config``."""
    ours = [field.name for field in model_config_pb2.ModelConfig.DESCRIPTOR.fields]
    assert ours == [field.name for field in triton_config.ModelConfig.DESCRIPTOR.fields]


def test_a_message_of_ours_is_read_by_tritons_class() -> None:
    request = grpc_service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[b"x"])
    request.parameters["sequence_id"].int64_param = 7
    theirs = triton_service.ModelInferRequest.FromString(request.SerializeToString())
    assert theirs.parameters["sequence_id"].int64_param == 7
    assert type(theirs) is not type(request)


@pytest.mark.parametrize("first", ["serving_node.contract.proto.grpc_service_pb2", "tritonclient.grpc.service_pb2"])
def test_both_can_be_imported_in_one_process_in_either_order(first: str) -> None:
    code = f"import {first}, tritonclient.grpc.service_pb2, serving_node.contract.proto.grpc_service_pb2"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_health_is_grpcs_health_version_1() -> None:
    response = health_pb2.HealthCheckResponse
    assert response.DESCRIPTOR.full_name == "grpc.health.v1.HealthCheckResponse"
    assert dict(response.ServingStatus.items()) == {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}
    assert health_pb2.HealthCheckRequest(service="s").SerializeToString() == b"\x0a\x01s"
    assert response(status=response.SERVING).SerializeToString() == b"\x08\x01"
    methods = {m.name: m.server_streaming for m in health_pb2.DESCRIPTOR.services_by_name["Health"].methods}
    assert methods == {"Check": False, "Watch": True}


# Prometheus' client model: message -> {field: (number, type)}. Source: github.com/prometheus/client_model.
_F = descriptor_pb2.FieldDescriptorProto
PROMETHEUS = {
    "LabelPair": {"name": (1, _F.TYPE_STRING), "value": (2, _F.TYPE_STRING)},
    "Gauge": {"value": (1, _F.TYPE_DOUBLE)},
    "Counter": {
        "value": (1, _F.TYPE_DOUBLE),
        "exemplar": (2, _F.TYPE_MESSAGE),
        "created_timestamp": (3, _F.TYPE_MESSAGE),
    },
    "Quantile": {"quantile": (1, _F.TYPE_DOUBLE), "value": (2, _F.TYPE_DOUBLE)},
    "Summary": {
        "sample_count": (1, _F.TYPE_UINT64),
        "sample_sum": (2, _F.TYPE_DOUBLE),
        "quantile": (3, _F.TYPE_MESSAGE),
        "created_timestamp": (4, _F.TYPE_MESSAGE),
    },
    "Untyped": {"value": (1, _F.TYPE_DOUBLE)},
    "Histogram": {
        "sample_count": (1, _F.TYPE_UINT64),
        "sample_sum": (2, _F.TYPE_DOUBLE),
        "bucket": (3, _F.TYPE_MESSAGE),
        "sample_count_float": (4, _F.TYPE_DOUBLE),
        "schema": (5, _F.TYPE_SINT32),
        "zero_threshold": (6, _F.TYPE_DOUBLE),
        "zero_count": (7, _F.TYPE_UINT64),
        "zero_count_float": (8, _F.TYPE_DOUBLE),
        "negative_span": (9, _F.TYPE_MESSAGE),
        "negative_delta": (10, _F.TYPE_SINT64),
        "negative_count": (11, _F.TYPE_DOUBLE),
        "positive_span": (12, _F.TYPE_MESSAGE),
        "positive_delta": (13, _F.TYPE_SINT64),
        "positive_count": (14, _F.TYPE_DOUBLE),
        "created_timestamp": (15, _F.TYPE_MESSAGE),
        "exemplars": (16, _F.TYPE_MESSAGE),
    },
    "Bucket": {
        "cumulative_count": (1, _F.TYPE_UINT64),
        "upper_bound": (2, _F.TYPE_DOUBLE),
        "exemplar": (3, _F.TYPE_MESSAGE),
        "cumulative_count_float": (4, _F.TYPE_DOUBLE),
    },
    "BucketSpan": {"offset": (1, _F.TYPE_SINT32), "length": (2, _F.TYPE_UINT32)},
    "Exemplar": {"label": (1, _F.TYPE_MESSAGE), "value": (2, _F.TYPE_DOUBLE), "timestamp": (3, _F.TYPE_MESSAGE)},
    "Metric": {
        "label": (1, _F.TYPE_MESSAGE),
        "gauge": (2, _F.TYPE_MESSAGE),
        "counter": (3, _F.TYPE_MESSAGE),
        "summary": (4, _F.TYPE_MESSAGE),
        "untyped": (5, _F.TYPE_MESSAGE),
        "timestamp_ms": (6, _F.TYPE_INT64),
        "histogram": (7, _F.TYPE_MESSAGE),
    },
    "MetricFamily": {
        "name": (1, _F.TYPE_STRING),
        "help": (2, _F.TYPE_STRING),
        "type": (3, _F.TYPE_ENUM),
        "metric": (4, _F.TYPE_MESSAGE),
        "unit": (5, _F.TYPE_STRING),
    },
}


def test_metrics_have_prometheus_fields_with_native_histograms() -> None:
    file = metrics_pb2.DESCRIPTOR
    assert file.package == "io.prometheus.client"
    ours = {
        name: {field.name: (field.number, field.type) for field in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert ours == PROMETHEUS
    assert dict(metrics_pb2.MetricType.items()) == {
        "COUNTER": 0,
        "GAUGE": 1,
        "SUMMARY": 2,
        "UNTYPED": 3,
        "HISTOGRAM": 4,
        "GAUGE_HISTOGRAM": 5,
    }


def test_a_zero_of_a_metric_is_sent_because_the_file_is_proto2() -> None:
    """Prometheus' files are proto2: a set zero is on the wire, an unset one is not."""
    assert metrics_pb2.Gauge(value=0.0).SerializeToString() == b"\x09" + bytes(8)
    assert metrics_pb2.Gauge().SerializeToString() == b""
