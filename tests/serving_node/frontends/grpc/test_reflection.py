"""Reflection, through gRPC's own client and as bytes."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from serving_node.contract.proto import reflection_pb2 as pb
from serving_node.frontends.grpc.reflection import SERVICES, Reflection

from .calls import serving


def test_a_client_without_files_finds_everything(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert database.get_services() == list(SERVICES)
        pool = DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        method = service.methods_by_name["ModelStreamInfer"]
        assert method.input_type.fields_by_name["raw_input_contents"].number == 7
        assert pool.FindMessageTypeByName("inference.ModelConfig").fields_by_name["max_batch_size"].number == 4
        assert pool.FindServiceByName("grpc.health.v1.Health").methods_by_name["Check"].name == "Check"


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_versions_describe_themselves(dataplane: Any, loop_thread: Any, version: str) -> None:
    name = f"grpc.reflection.{version}.ServerReflection"
    request = pb.ServerReflectionRequest(file_containing_symbol=name)
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        method = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            request_serializer=pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        responses = list(method(iter([request, request]), timeout=30))
    assert len(responses) == 2
    pool = DescriptorPool()
    for raw in responses[0].file_descriptor_response.file_descriptor_proto:
        pool.AddSerializedFile(raw)
    service = pool.FindServiceByName(name)
    assert service.methods[0].output_type.full_name == f"grpc.reflection.{version}.ServerReflectionResponse"


def ask(**question: Any) -> pb.ServerReflectionResponse:
    return Reflection().answer(pb.ServerReflectionRequest(host="h", **question))


@pytest.mark.parametrize(
    "symbol",
    [
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor",
        "inference.GRPCInferenceService.ModelInfer",
        "inference.DataType",
    ],
)
def test_symbols_of_every_kind(symbol: str) -> None:
    files = ask(file_containing_symbol=symbol).file_descriptor_response.file_descriptor_proto
    assert files


def test_files_are_found_by_both_names_and_come_with_what_they_import() -> None:
    short, full = (
        list(ask(file_by_filename=name).file_descriptor_response.file_descriptor_proto)
        for name in ("grpc_service.proto", "serving_node/contract/proto/grpc_service.proto")
    )
    assert short == full
    assert len(short) > 1


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "other.proto"},
        {"file_containing_symbol": "no.such.Symbol"},
        {"file_containing_symbol": "grpc.reflection.v1alpha.Nothing"},
        {"file_containing_symbol": "io.prometheus.client.Metric"},
        {"all_extension_numbers_of_type": "no.such.Message"},
        {"file_containing_extension": pb.ExtensionRequest(containing_type="inference.ModelConfig", extension_number=1)},
    ],
)
def test_what_is_not_there(question: dict[str, Any]) -> None:
    answer = ask(**question)
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert (answer.valid_host, answer.original_request.host) == ("h", "h")


def test_messages_have_no_extensions() -> None:
    answer = ask(all_extension_numbers_of_type="inference.ModelConfig").all_extension_numbers_response
    assert (answer.base_type_name, list(answer.extension_number)) == ("inference.ModelConfig", [])


def test_a_request_for_nothing() -> None:
    assert ask().error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
