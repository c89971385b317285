"""HTTP/2 for servers, without I/O. See ``connection``."""

from serving_node.wire.http2.connection import Http2Connection
from serving_node.wire.http2.frames import Http2Limits, Stream, StreamSink
from serving_node.wire.http2.headers import RequestHeaders, encode_headers
from serving_node.wire.http2.keepalive import KeepAlive, KeepAlivePolicy, KeepAliveStep

__all__ = [
    "Http2Connection",
    "Http2Limits",
    "KeepAlive",
    "KeepAlivePolicy",
    "KeepAliveStep",
    "RequestHeaders",
    "Stream",
    "StreamSink",
    "encode_headers",
]
