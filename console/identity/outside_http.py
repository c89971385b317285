"""Requests to providers of single sign-on: only to public addresses, or to networks that the operator allows.

The name is resolved once, each of its addresses is looked at, and the connection goes to one that was.
"""

from __future__ import annotations

import functools
import socket
from typing import Any

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from registry.domain.addresses import is_in, is_public, parse_address, parse_networks

MAX_REDIRECTS = 3


class PrivateAddress(requests.RequestException):
    """The host has an address that may not be called."""


def connect(host: str, port: int, timeout: Any, *, needs_private: bool) -> socket.socket:
    """Return a connection to a checked address of ``host``.

    Raises:
        PrivateAddress: an address of it may not be called; plain http goes to allowed private networks only.
        OSError: it cannot be reached.
    """
    allowed = parse_networks(settings.SSO_ALLOWED_NETWORKS)
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for text in addresses:
        address = parse_address(text)
        is_private = address is not None and is_in(address, allowed)
        if address is None or not (is_private or (is_public(address) and not needs_private)):
            raise PrivateAddress(f"{host} has an address that may not be called")
    seconds = timeout if isinstance(timeout, int | float) else settings.SOCIALACCOUNT_REQUESTS_TIMEOUT
    return socket.create_connection((addresses[0], port), seconds)


class _PlainConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return connect(self.host, self.port, self.timeout, needs_private=True)


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return connect(self.host, self.port, self.timeout, needs_private=False)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _CheckedAdapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


def outside_session() -> requests.Session:
    """Return a session of requests for one conversation; proxies of the environment are not used."""
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = MAX_REDIRECTS
    for scheme in ("http://", "https://"):
        session.mount(scheme, _CheckedAdapter())
    timeout = settings.SOCIALACCOUNT_REQUESTS_TIMEOUT
    session.request = functools.partial(session.request, timeout=timeout)  # type: ignore[method-assign]
    return session
