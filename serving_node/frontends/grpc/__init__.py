"""gRPC: the v2 inference service and the health service over ``wire.grpc``."""

from serving_node.frontends.grpc.connection import GrpcLimits
from serving_node.frontends.grpc.frontend import GrpcFrontend

__all__ = ["GrpcFrontend", "GrpcLimits"]
