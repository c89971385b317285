"""Certificates of nodes: a client that trusts the authority reaches the named host, and nobody else."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from flotilla import certificates


def _handshake(folder: Path, host: str, expected: str) -> None:
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / f"{host}.pem", folder / f"{host}.key")
    client_context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server_context.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client_context.wrap_socket(ours, server_hostname=expected).close()
    finally:
        ours.close()
        thread.join(30)


def test_certificate_names_exactly_its_host(tmp_path: Path) -> None:
    certificates.main([str(tmp_path), "node-a", "node-b"])
    _handshake(tmp_path, "node-a", "node-a")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(tmp_path, "node-a", "node-b")


def test_second_run_keeps_what_is_fresh(tmp_path: Path) -> None:
    certificates.main([str(tmp_path), "127.0.0.1"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    certificates.main([str(tmp_path), "127.0.0.1"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert (tmp_path / "127.0.0.1.key").stat().st_mode & 0o077 == 0
