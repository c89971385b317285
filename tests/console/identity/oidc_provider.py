"""A small OpenID Connect provider on loopback: code flow with PKCE, signed identity tokens, groups."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "flotilla", "a secret of the client"


@dataclass
class Oidc:
    """What the provider says. ``claims`` are of the person who signs in; the others spoil an answer."""

    claims: dict[str, Any]
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    wrong_key: rsa.RSAPrivateKey | None = None
    spoiled: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    described_issuer: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    issuer: str = ""

    def start(self) -> Oidc:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.get(self)

            def do_POST(self) -> None:
                provider.token(self)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/.well-known/openid-configuration":
            answer(handler, self._description())
        elif parts.path == "/jwks":
            algorithm = jwt.algorithms.RSAAlgorithm
            public = json.loads(algorithm.to_jwk(self.key.public_key()))
            answer(handler, {"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]})
        elif parts.path == "/userinfo":
            answer(handler, {**self.claims, **self.userinfo})
        elif parts.path == "/authorize":
            code = secrets.token_hex(8)
            self.codes[code] = query
            back = urlencode({"code": code, "state": query["state"]})
            handler.send_response(302)
            handler.send_header("Location", f"{query['redirect_uri']}?{back}")
            handler.end_headers()
        else:
            answer(handler, {"error": "not_found"}, 404)

    def token(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        given = {name: values[0] for name, values in parse_qs(body).items()}
        asked = self.codes.pop(given.get("code", ""), None)
        verifier = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        good = (
            asked is not None
            and (given["client_id"], given["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
            and given["redirect_uri"] == asked["redirect_uri"]
            and base64.urlsafe_b64encode(verifier).decode().rstrip("=") == asked["code_challenge"]
        )
        if not good:
            return answer(handler, {"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, **self.claims, **self.spoiled}
        signed = jwt.encode(claims, self.wrong_key or self.key, "RS256", headers={"kid": "one"})
        return answer(handler, {"access_token": "t", "token_type": "Bearer", "id_token": signed})

    def _description(self) -> dict[str, Any]:
        return {
            "issuer": self.described_issuer or self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/logout",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }


def answer(handler: BaseHTTPRequestHandler, document: dict[str, Any], status: int = 200) -> None:
    body = json.dumps(document).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
