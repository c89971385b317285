"""The descriptor pool of the generated modules, apart from protobuf's default pool.

Triton's own client registers files with the same symbols (package ``inference``) in the default pool, and a pool
refuses a symbol that it already has. With a pool of our own a program may import both this package and
``tritonclient.grpc``. Messages of the two sides are different classes with the same wire format.
"""

from __future__ import annotations

from google.protobuf import descriptor_pool, timestamp_pb2

POOL = descriptor_pool.DescriptorPool()
# Dependencies of our files must be in the same pool.
POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
