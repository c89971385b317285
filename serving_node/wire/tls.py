"""TLS of the listening ports. Source: RFC 9325 for versions, RFC 7301 for ALPN, RFC 9113 section 9.2 for HTTP/2."""

from __future__ import annotations

import ssl
from pathlib import Path

ALPN_HTTP = ("http/1.1",)
ALPN_GRPC = ("h2",)


class TlsError(ValueError):
    """A certificate, key or root certificate cannot be used. The text is one sentence."""


def server_context(
    certificate: Path, key: Path, *, root: Path | None = None, mutual: bool = False, protocols: tuple[str, ...]
) -> ssl.SSLContext:
    """Return the context of a server that shows ``certificate`` (a chain, PEM) and speaks TLS 1.2 or newer.

    With ``mutual`` only clients with a certificate signed by one in ``root`` are let in. ``protocols`` is what ALPN
    offers; a client that offers none of them is still let in, as many clients offer nothing.

    Raises:
        TlsError: a file is missing, unreadable or not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Compression leaks secrets (CRIME), renegotiation costs the server more than the client.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(list(protocols))
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"cannot use the certificate {certificate} with the key {key}: {_reason(error)}") from None
    if mutual:
        if root is None:
            raise TlsError("mutual TLS needs the root certificates that clients' certificates are signed by")
        try:
            context.load_verify_locations(root)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"cannot use the root certificates {root}: {_reason(error)}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _refuse_password() -> str:
    # without this OpenSSL would ask on the terminal and a node without one would hang
    raise TlsError("the private key is encrypted; the node takes only keys without a passphrase")


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).replace("_", " ").lower()
