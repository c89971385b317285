"""Which processes make up Flotilla on one machine: their command lines, environments and health gates."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from flotilla import settings
from flotilla.embedded import postgres, valkey
from flotilla.up import health
from flotilla.up.data_folder import DataFolder
from flotilla.up.process import ProcessSpec

_WEB_GRACE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What ``flotilla up`` was asked for. ``node_port`` is the HTTP port; gRPC, metrics and admin follow it."""

    data_dir: Path
    port: int = 7070
    node_port: int = 8000
    with_node: bool = True
    database_user: str = "nobody"
    jobs_concurrency: int = 2  # a measurement takes minutes, and must not hold up the checks of an upload


@dataclass(slots=True)
class Stack:
    """Builds the specs, in the order in which they start."""

    options: UpOptions
    folder: DataFolder
    servers: list[ProcessSpec] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        """Where the console is."""
        return f"http://127.0.0.1:{self.options.port}"

    def prepare_servers(self) -> None:
        """Fill in ``servers`` (embedded PostgreSQL and Valkey, unless somebody else runs them) and ``environment``."""
        environment = settings.inherited_environment()
        database_url = settings.external_database_url()
        redis_url = settings.external_redis_url()
        if not database_url:
            database_url = self._prepare_postgres()
        if not redis_url:
            redis_url = self._prepare_valkey()
        own = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "FLOTILLA_SECRET_KEY_FILE": str(self.folder.secret_file("secret-key", 48)),
            "FLOTILLA_DATA_DIR": str(self.folder.path),
            "FLOTILLA_PUBLIC_URL": self.url,
            "ORT_DISABLE_TELEMETRY": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.folder.write_environment(own)
        self.environment = environment | own

    def control_plane(self) -> list[ProcessSpec]:
        """Web server, workers, beat and the observer."""
        celery = [sys.executable, "-m", "celery", "--quiet", "-A", "workers.celery"]
        worker = [*celery, "worker", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
        web_port = self.options.port

        async def web_is_ready() -> bool:
            return await health.answers_http(web_port, "/readyz")

        return [
            self._python(
                "web",
                [
                    sys.executable,
                    *("-m", "uvicorn", "console.asgi:application"),
                    *("--host", "127.0.0.1", "--port", str(web_port)),
                    *("--http", "console.middleware.http_protocol:BoundedProtocol"),
                    *("--timeout-graceful-shutdown", str(_WEB_GRACE_SECONDS)),
                    # whose X-Forwarded-For is believed is the console's own setting, FLOTILLA_TRUSTED_PROXIES
                    *("--no-access-log", "--log-level", "warning", "--no-server-header", "--no-proxy-headers"),
                ],
                is_healthy=web_is_ready,
                extra={"FLOTILLA_DB_POOL": "1"},
            ),
            self._python("worker", [*worker, "-Q", "control,interactive", "-c", "3", "-n", "control@%h"]),
            self._python("jobs", [*worker, "-Q", "jobs", "-c", str(self.options.jobs_concurrency), "-n", "jobs@%h"]),
            self._python("beat", [*celery, "beat", "--loglevel=WARNING", "--pidfile="]),
            self._python("observe", [sys.executable, "-m", "workers.observe"]),
        ]

    def node(self, join_token_file: Path) -> ProcessSpec:
        """The serving node that joins by itself."""
        first = self.options.node_port

        async def node_is_live() -> bool:
            return await health.answers_http(first, "/v2/health/live")

        command = [
            *(sys.executable, "-m", "serving_node"),
            *("--join", self.url, "--join-token-file", str(join_token_file)),
            *("--state-dir", str(self.folder.path / "node"), "--node-name", "local"),
            *("--http-address", "127.0.0.1", "--http-port", str(first)),
            *("--grpc-address", "127.0.0.1", "--grpc-port", str(first + 1)),
            *("--metrics-address", "127.0.0.1", "--metrics-port", str(first + 2)),
            *("--admin-address", "127.0.0.1", "--admin-port", str(first + 3)),
        ]
        # the node knows neither the database nor the broker
        environment = {
            name: value
            for name, value in self.environment.items()
            if name not in {"DATABASE_URL", "REDIS_URL", "FLOTILLA_SECRET_KEY_FILE", "DJANGO_SETTINGS_MODULE"}
        }
        return ProcessSpec("node", command, environment, node_is_live, stop_timeout_seconds=40)

    def _python(
        self,
        name: str,
        command: list[str],
        *,
        is_healthy: health.HealthGate | None = None,
        extra: dict[str, str] | None = None,
    ) -> ProcessSpec:
        environment = self.environment | {"FLOTILLA_DB_CONN_MAX_AGE": "60"} | (extra or {})
        return ProcessSpec(name, command, environment, is_healthy or health.always)

    def _prepare_postgres(self) -> str:
        port = self.folder.port("postgres")
        cluster = postgres.prepare(
            self.folder.path, port, self.folder.secret("postgres-password"), self.options.database_user
        )

        async def takes_logins() -> bool:
            return await health.accepts_postgres_start(port)

        self.servers.append(
            ProcessSpec(
                "postgres",
                cluster.command,
                {"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                takes_logins,
                stop_signal=signal.SIGINT,
                stop_timeout_seconds=30,
                orphan_signal=signal.SIGINT,
                user=cluster.user,
                working_folder=cluster.data,
            )
        )
        return cluster.url

    def _prepare_valkey(self) -> str:
        port = self.folder.port("valkey")
        server = valkey.prepare(self.folder.path, port, self.folder.secret("valkey-password"))

        async def answers() -> bool:
            return await health.answers_ping(port, server.password)

        self.servers.append(
            ProcessSpec("valkey", server.command, {"PATH": "/usr/bin:/bin"}, answers, orphan_signal=signal.SIGTERM)
        )
        return server.url


def join_token_file(folder: DataFolder, token: str) -> Path:
    """Keep a join token where only the node's user can read it."""
    target = folder.secret_file("join-token")
    target.write_text(token)
    return target
