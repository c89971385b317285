"""The ports of a node before it listens: whether they can be had, and their TLS."""

from __future__ import annotations

import errno
import socket
import ssl

from serving_node.settings import NodeSettings
from serving_node.wire.tls import ALPN_GRPC, ALPN_HTTP, TlsError, server_context


class StartError(Exception):
    """The node cannot start. One sentence for the person who started it."""


def http_tls(settings: NodeSettings) -> ssl.SSLContext | None:
    """Return the TLS of the HTTP port, None without. Raises StartError."""
    if not settings.http_use_ssl or settings.http_server_cert is None or settings.http_server_key is None:
        return None
    try:
        return server_context(
            settings.http_server_cert,
            settings.http_server_key,
            root=settings.http_root_cert,
            mutual=settings.http_use_ssl_mutual,
            protocols=ALPN_HTTP,
        )
    except TlsError as error:
        raise StartError(str(error)) from error


def grpc_tls(settings: NodeSettings) -> ssl.SSLContext | None:
    """Return the TLS of the gRPC port, None without. Raises StartError."""
    mutual = settings.grpc_use_ssl_mutual
    if not (settings.grpc_use_ssl or mutual) or settings.grpc_server_cert is None or settings.grpc_server_key is None:
        return None
    try:
        return server_context(
            settings.grpc_server_cert,
            settings.grpc_server_key,
            root=settings.grpc_root_cert,
            mutual=mutual,
            protocols=ALPN_GRPC,
        )
    except TlsError as error:
        raise StartError(str(error)) from error


def admin_tls(settings: NodeSettings) -> ssl.SSLContext | None:
    """Return the TLS of the admin port, None without. Raises StartError."""
    if settings.admin_tls_cert is None or settings.admin_tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.admin_tls_cert, settings.admin_tls_key)
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"cannot use the certificate {settings.admin_tls_cert}: {error}") from error
    return context


def check_ports_free(settings: NodeSettings) -> None:
    """Refuse a taken port before models are loaded, which may take minutes."""
    reused = {"http": settings.reuse_http_port, "grpc": settings.reuse_grpc_port}
    for name, used, address, port in (
        ("http", settings.allow_http, settings.http_address, settings.http_port),
        ("grpc", settings.allow_grpc, settings.grpc_address, settings.grpc_port),
        ("metrics", settings.allow_metrics, settings.effective_metrics_address, settings.metrics_port),
        ("admin", settings.joined, settings.admin_address, settings.admin_port),
    ):
        if not used or not port or reused.get(name):
            continue
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            raise StartError(cannot_listen(name, address, port, error)) from error


def cannot_listen(name: str, address: str, port: int, error: OSError) -> str:
    """Return why a port cannot be had, as one sentence."""
    if error.errno == errno.EADDRINUSE:
        return f"the {name} port {port} on {address} is taken by another process; choose one with --{name}-port"
    return f"cannot listen on {address}:{port} for {name}: {error.strerror or error}"
