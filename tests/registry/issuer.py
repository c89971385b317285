"""A real issuer on loopback: own keys, discovery and key set over HTTP, tokens as GitHub and GitLab make them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

GITHUB = {
    "repository": "octo/swift",
    "repository_id": "4711",
    "repository_owner_id": "99",
    "ref": "refs/heads/main",
    "ref_protected": "true",
    "environment": "production",
    "workflow_ref": "octo/swift/.github/workflows/push.yml@refs/heads/main",
    "event_name": "push",
    "run_id": "123",
}
GITLAB = {
    "project_path": "group/swift",
    "project_id": "4711",
    "namespace_id": "99",
    "ref": "main",
    "ref_type": "branch",
    "ref_protected": "true",
    "ci_config_ref_uri": "gitlab.example/group/swift//.gitlab-ci.yml@refs/heads/main",
    "pipeline_source": "push",
    "pipeline_id": "123",
}


class TestIssuer:
    """``documents`` is what it answers by path; ``asked`` the paths that were asked for."""

    __test__ = False

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.asked: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                found = issuer.documents.get(self.path)
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.documents: dict[str, Any] = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [self.jwk("rsa"), self.jwk("ec")]},
        }

    def jwk(self, kid: str) -> dict[str, Any]:
        """Return a public key of its as it publishes it."""
        key: Any = self.rsa if kid == "rsa" else self.ec
        algorithm = jwt.algorithms.RSAAlgorithm if kid == "rsa" else jwt.algorithms.ECAlgorithm
        return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}

    def token(self, audience: Any, claims: dict[str, Any], *, kid: str = "rsa", key: Any = None, **other: Any) -> str:
        """Return a token of a job. ``other`` replaces claims; None leaves one out."""
        now = int(time.time())
        times = {"iat": now, "nbf": now - 5, "exp": now + 300}
        base = {"iss": self.url, "aud": audience, "sub": "job", "jti": str(uuid.uuid4())}
        whole = {**base, **times, **claims, **other}
        signer = key or (self.ec if kid == "ec" else self.rsa)
        algorithm = "ES256" if isinstance(signer, ec.EllipticCurvePrivateKey) else "RS256"
        kept = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(kept, signer, algorithm=algorithm, headers={"kid": kid})


@contextmanager
def listening() -> Iterator[TestIssuer]:
    """Run an issuer until the block ends."""
    issuer = TestIssuer()
    thread = threading.Thread(target=issuer.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield issuer
    finally:
        issuer.server.shutdown()
        thread.join(30)
        issuer.server.server_close()
