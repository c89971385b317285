"""The cast of the console's tests, and the web server as it really runs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest
import uvicorn
from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.account.internal.userkit import user_id_to_str
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.db import connections
from django.test import Client

from console.middleware.http_protocol import BoundedProtocol
from registry.domain.actors import Actor
from registry.models import (
    ApiToken,
    Fleet,
    Issuer,
    Membership,
    ModelVersion,
    Project,
    Role,
    ServingNode,
    SigningIdentity,
    SigningKey,
    SiteRole,
    TrustRule,
    User,
)
from registry.services import fleet, models, signing, signing_identities, tokens, trust, uploads, versions
from serving_node.contract.control import FileRef
from serving_node.contract.digests import manifest_digest
from serving_node.contract.signature import ModelSignature, TensorSignature
from tests.ports import held_port

SIGNATURE = ModelSignature(
    inputs=(TensorSignature("x", "FP32", (-1, 4)),),
    outputs=(TensorSignature("y", "FP32", (-1, 2)),),
)
PASSWORD = "correct horse battery"
NODE_ENDPOINTS = {
    "http": "http://127.0.0.1:24990",
    "grpc": "http://127.0.0.1:24991",
    "metrics": "http://127.0.0.1:24992",
    "admin": "http://127.0.0.1:24993",
}


def public_key() -> str:
    """Return the PEM of a new public key that signatures can be verified with."""
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@dataclass
class Cast:
    """Alice administers project wren, Bob publishes there, Vera only looks, Charlie belongs elsewhere."""

    alice: User
    bob: User
    vera: User
    charlie: User
    project: Project

    def actor(self, name: str) -> Actor:
        return Actor.person(getattr(self, name), ip="127.0.0.1", request_id="test")

    def token(self, name: str, *scopes: str, project: Project | None = None) -> str:
        """Return a new bearer text of that person."""
        return self.token_row(name, *scopes, project=project)[1]

    def token_row(self, name: str, *scopes: str, project: Project | None = None) -> tuple[ApiToken, str]:
        return tokens.token_create(
            owner=getattr(self, name),
            name="test",
            scopes=list(scopes or ("read", "write", "admin")),
            project=project,
            actor=self.actor(name),
        )

    def version(self, slug: str = "finch") -> ModelVersion:
        """Return a fresh version of Bob's, in state uploading."""
        model, _created = models.model_get_or_create(project=self.project, slug=slug, actor=self.actor("bob"))
        return versions.version_create(model=model, actor=self.actor("bob"))

    def store_file(self, version: ModelVersion, path: str, content: bytes) -> None:
        """Give a version a file as a finished upload would."""
        upload = uploads.upload_create(version=version, path=path, length=len(content), actor=self.actor("bob"))
        staged = uploads.staging_path(upload.pk)
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(content)
        uploads.upload_advance(upload_id=upload.pk, from_offset=0, to_offset=len(content))
        uploads.upload_received(upload_id=upload.pk)
        uploads.upload_store(upload_id=upload.pk)

    def ready_version(self, slug: str = "finch", content: bytes = b"weights") -> ModelVersion:
        """Return a version of Bob's that passed its checks; the model has its first config then."""
        version = self.version(slug)
        self.store_file(version, "model.onnx", content)
        versions.version_submit(version=version, actor=self.actor("bob"))
        files = [FileRef(file.path, file.blob.sha256, file.blob.size) for file in version.files.all()]
        versions.version_accept(
            version=version,
            signature=SIGNATURE,
            format="onnx",
            manifest_digest=manifest_digest(files),
            size=len(content),
        )
        version.refresh_from_db()
        return version

    def trust_rule(self, name: str = "push") -> TrustRule:
        """Return a rule by which GitHub jobs of a repository act as the service account robot in project wren."""
        alice = self.actor("alice")
        issuer = Issuer.objects.filter(slug="github").first()
        # An address that is never called: no network allows it.
        url = "http://127.0.0.1:9"
        issuer = issuer or Issuer.objects.create(slug="github", kind="github", url=url, max_age_minutes=10)
        robot, made = User.objects.get_or_create(username="robot", defaults={"is_service": True})
        if made:
            Membership.objects.create(project=self.project, user=robot, role=Role.PUBLISHER)
        return trust.trust_rule_create(
            project=self.project,
            issuer=issuer,
            service_account=robot,
            name=name,
            repository="octo/swift",
            repository_id="4711",
            owner_id="99",
            scopes=["write"],
            actor=alice,
        )

    def signing_key(self, name: str = "release") -> SigningKey:
        """Return a new key that project wren trusts."""
        return signing.signing_key_add(
            project=self.project, name=name, public_key=public_key(), actor=self.actor("alice")
        )

    def signing_identity(self, name: str = "ci") -> SigningIdentity:
        """Return a new keyless identity that project wren trusts."""
        return signing_identities.signing_identity_add(
            project=self.project,
            name=name,
            identity=f"{name}@corp.example",
            issuer="https://accounts.corp.example",
            actor=self.actor("alice"),
        )

    def environment(self, slug: str, *, approvals: int) -> Fleet:
        """Return a new environment's fleet of the same name."""
        environment = fleet.environment_create(
            slug=slug,
            name=slug,
            requires_approval=approvals > 0,
            required_approvals=approvals,
            actor=self.actor("alice"),
        )
        return fleet.fleet_create(
            slug=slug,
            name=slug,
            environment=environment,
            selector={"environment": slug},
            actor=self.actor("alice"),
        )


def make_cast() -> Cast:
    def user(name: str, site_role: str) -> User:
        return User.objects.create_user(name, password=PASSWORD, site_role=site_role)

    people = {
        "alice": user("alice", SiteRole.ADMIN),
        "bob": user("bob", SiteRole.NONE),
        "vera": user("vera", SiteRole.NONE),
        "charlie": user("charlie", SiteRole.NONE),
    }
    project = Project.objects.create(slug="wren", name="Wren")
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    for owner, place, role in (
        ("alice", project, Role.ADMIN),
        ("bob", project, Role.PUBLISHER),
        ("vera", project, Role.VIEWER),
        ("charlie", elsewhere, Role.ADMIN),
    ):
        Membership.objects.create(project=place, user=people[owner], role=role)
    return Cast(**people, project=project)


def signed_in(client: Client, user: User) -> Client:
    """Sign somebody in as if the password had just been given."""
    client.force_login(user)
    session = client.session
    session[AUTHENTICATION_METHODS_SESSION_KEY] = [{"method": "password", "at": time.time()}]
    session["account_authentication_methods_user"] = user_id_to_str(user)
    session.save()
    return client


@pytest.fixture(autouse=True)
def _own_folders(settings: Any, tmp_path: Path) -> None:
    settings.STAGING_DIR = tmp_path / "staging"
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").absolute().as_uri()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture
def shared_cast(transactional_db: None) -> Cast:
    """The cast, visible to the server's threads too."""
    return make_cast()


def join_node(cast: Cast, name: str = "node-1", **labels: str) -> tuple[ServingNode, str]:
    """Return a node that joined, with its own token."""
    _row, token = fleet.join_token_create(labels=labels, actor=cast.actor("alice"))
    return fleet.node_join(
        token=token,
        name=name,
        endpoints=NODE_ENDPOINTS,
        admin_secret=uuid.uuid4().hex,
        inventory={},
        contract_version=1,
    )


class RunningConsole:
    """uvicorn in a thread, on a port of its own."""

    def __init__(self, application: Any) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            application,
            http=BoundedProtocol,
            lifespan="on",
            log_level="warning",
            timeout_graceful_shutdown=2,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="console")

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            connections.close_all()

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
            assert self._thread.is_alive()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()
        assert not self._thread.is_alive()

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


@contextmanager
def running_console(application: Any) -> Iterator[RunningConsole]:
    server = RunningConsole(application)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Do the work in threads that begin together; return what they did, in order."""
    start, answers = threading.Barrier(count), [None] * count

    def one(index: int) -> None:
        start.wait(60)
        answers[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    connections.close_all()
    return answers


@pytest.fixture
def console(transactional_db: None) -> Iterator[RunningConsole]:
    from console.asgi import Application

    with running_console(Application()) as server:
        yield server


class ConsoleProcess:
    """The web server in a process of its own, with the connection pool, as ``flotilla up`` starts it."""

    def __init__(self, environment: dict[str, str], application: str = "console.asgi:application") -> None:
        self.application = application
        self.port = held_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", self.application, "--no-proxy-headers"]
        command += ["--http", "console.middleware.http_protocol:BoundedProtocol"]
        options = ["--port", str(self.port), "--log-level", "warning", "--timeout-graceful-shutdown", "3"]
        self._process = subprocess.Popen([*command, *options], env=self.environment)
        deadline = time.monotonic() + 120
        with self.client() as client:
            while True:
                assert self._process.poll() is None
                assert time.monotonic() < deadline
                try:
                    if client.get("/readyz").status_code == 200:
                        return
                except httpx2.TransportError:
                    time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait(self, seconds: float) -> int:
        """Return the status with which it ended by itself."""
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


@pytest.fixture
def process_environment(transactional_db: None, settings: Any, tmp_path: Path) -> dict[str, str]:
    """What a process of its own needs for the database and the folders of the test."""
    database = urlsplit(settings.DATABASE_URL)._replace(path="/" + connections["default"].settings_dict["NAME"])
    return {
        **os.environ,
        "DATABASE_URL": urlunsplit(database),
        "REDIS_URL": settings.REDIS_URL,
        "FLOTILLA_DB_POOL": "1",
        "FLOTILLA_DATA_DIR": str(tmp_path),
        "FLOTILLA_STAGING_DIR": str(settings.STAGING_DIR),
        "FLOTILLA_ARTIFACT_STORE_URL": settings.ARTIFACT_STORE_URL,
        "FLOTILLA_SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }


@pytest.fixture
def console_process(process_environment: dict[str, str]) -> Iterator[ConsoleProcess]:
    process = ConsoleProcess(process_environment)
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def api(cast: Cast) -> Callable[..., Any]:
    """Return a REST client signed in by token: ``api("bob", "read")``."""
    from rest_framework.test import APIClient

    def client(name: str, *scopes: str) -> APIClient:
        found = APIClient()
        found.credentials(HTTP_AUTHORIZATION=f"Bearer {cast.token(name, *scopes)}")
        return found

    return client
