"""Memory that clients share with the node, for both protocols. Source: Triton's shared memory extensions."""

from serving_node.frontends.shared_memory.cuda import HANDLE_BYTES
from serving_node.frontends.shared_memory.registry import (
    DISABLED,
    RegionFacts,
    RegionKind,
    RegionLease,
    SharedMemory,
    Slice,
)

__all__ = ["DISABLED", "HANDLE_BYTES", "RegionFacts", "RegionKind", "RegionLease", "SharedMemory", "Slice"]
