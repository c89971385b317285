"""HTTP: the v2 inference protocol over ``wire.http1``."""

from serving_node.frontends.http.frontend import HttpFrontend, HttpLimits

__all__ = ["HttpFrontend", "HttpLimits"]
