"""Registering, listing and unregistering shared memory over gRPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.frontends.shared_memory import RegionKind, SharedMemory

_SYSTEM, _CUDA = RegionKind.SYSTEM, RegionKind.CUDA


class SharedMemoryMethods:
    """The methods of both kinds of memory."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    def table(self) -> tuple[tuple[str, type[Any], Callable[[Any], Message]], ...]:
        """Return the methods: name, type of the request, handler."""
        return (
            ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest, self._system_status),
            ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest, self._register_system),
            ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest, self._unregister_system),
            ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest, self._cuda_status),
            ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest, self._register_cuda),
            ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest, self._unregister_cuda),
        )

    def _system_status(self, request: pb.SystemSharedMemoryStatusRequest) -> Message:
        return self._status(pb.SystemSharedMemoryStatusResponse(), _SYSTEM, request.name)

    def _cuda_status(self, request: pb.CudaSharedMemoryStatusRequest) -> Message:
        return self._status(pb.CudaSharedMemoryStatusResponse(), _CUDA, request.name)

    def _status(self, response: Any, kind: RegionKind, name: str) -> Message:
        for fact in self._memory.status(kind, name):
            region = response.regions[fact.name]
            region.name = fact.name
            for key, value in fact.details.items():
                setattr(region, key, value)
        return response  # type: ignore[no-any-return]

    def _register_system(self, request: pb.SystemSharedMemoryRegisterRequest) -> Message:
        self._memory.register_system(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    def _register_cuda(self, request: pb.CudaSharedMemoryRegisterRequest) -> Message:
        self._memory.register_cuda(request.name, request.raw_handle, request.device_id, request.byte_size)
        return pb.CudaSharedMemoryRegisterResponse()

    def _unregister_system(self, request: pb.SystemSharedMemoryUnregisterRequest) -> Message:
        self._memory.unregister(_SYSTEM, request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    def _unregister_cuda(self, request: pb.CudaSharedMemoryUnregisterRequest) -> Message:
        self._memory.unregister(_CUDA, request.name)
        return pb.CudaSharedMemoryUnregisterResponse()
