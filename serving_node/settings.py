"""All settings of a node: command line over ``NODE_*`` environment over default, frozen after start."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from serving_node.frontends.compression_level import CompressionLevel
from serving_node.frontends.restricted_access import RestrictedAccess, RestrictedGroup
from serving_node.observability.logging import LogFormat
from serving_node.observability.metrics_config import MetricsConfig, metrics_config
from serving_node.observability.tracing.options import TraceLevel, TraceOptions, trace_options
from serving_node.repository.cloud_credentials import VARIABLES as CLOUD_VARIABLES
from serving_node.repository.on_request import OnRequestLimits
from serving_node.repository.remote_location import RemoteLocation
from serving_node.repository.repository import ControlMode
from serving_node.scheduling.cache_options import CacheSetting, LocalOptions, RedisOptions, cache_options
from serving_node.scheduling.rate_limit import Limit

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class SettingsError(ValueError):
    """The settings cannot be obeyed. The text is one sentence for the person who started the node."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is told at its start. Units: seconds and bytes as the names say.

    A node is either stand-alone (``model_repositories``) or joined to a control plane (``state_dir``).
    ``http_port`` and the other ports may be 0: the system picks one, and the start line says which.
    """

    # stand-alone
    model_repositories: tuple[Path | RemoteLocation, ...] = ()
    model_control_mode: ControlMode = ControlMode.NONE
    load_models: tuple[str, ...] = ()
    exit_on_error: bool = True
    strict_readiness: bool = True
    disable_auto_complete_config: bool = False
    model_load_thread_count: int = 4
    model_load_retry_count: int = 0
    model_load_gpu_limit: tuple[tuple[int, float], ...] = ()
    model_config_name: str = ""
    model_namespacing: bool = False
    load_on_request: bool = False
    load_on_request_timeout_secs: int = 60
    load_on_request_queue_size: int = 1000
    model_memory_budget: int = 0
    repository_poll_secs: int = 15
    rate_limit: str = "off"
    rate_limit_resources: tuple[Limit, ...] = ()
    host_policies: tuple[tuple[str, str, str], ...] = ()
    cache_config: tuple[CacheSetting, ...] = ()
    response_cache_byte_size: int | None = None
    backend_config: tuple[tuple[str, str, str], ...] = ()
    backend_directory: Path | None = None
    in_process_backends: tuple[str, ...] = ()
    allow_model_code: bool = True
    # joined
    join_url: str = ""
    join_token_file: Path | None = None
    state_dir: Path | None = None
    node_name: str = field(default_factory=socket.gethostname)
    labels: tuple[tuple[str, str], ...] = ()
    blob_quota_bytes: int = 50 * 1024**3
    believed_signers: Path | None = None
    advertise_host: str = ""
    # ports
    server_id: str = "triton"
    allow_http: bool = True
    http_address: str = "0.0.0.0"  # noqa: S104  Triton's default: inference is served to everybody who can reach it
    http_port: int = 8000
    http_max_input_size: int = 64 * 1024 * 1024
    http_max_connections: int = 16384
    http_idle_timeout_secs: int = 300
    http_read_timeout_secs: int = 30
    http_header_forward_pattern: str = ""
    http_restricted_api: tuple[RestrictedGroup, ...] = ()
    reuse_http_port: bool = False
    http_use_ssl: bool = False
    http_use_ssl_mutual: bool = False
    http_server_cert: Path | None = None
    http_server_key: Path | None = None
    http_root_cert: Path | None = None
    allow_grpc: bool = True
    grpc_address: str = "0.0.0.0"  # noqa: S104
    grpc_port: int = 8001
    grpc_max_connections: int = 16384
    grpc_header_forward_pattern: str = ""
    grpc_restricted_protocol: tuple[RestrictedGroup, ...] = ()
    grpc_infer_response_compression_level: CompressionLevel = CompressionLevel.NONE
    reuse_grpc_port: bool = False
    grpc_use_ssl: bool = False
    grpc_use_ssl_mutual: bool = False
    grpc_server_cert: Path | None = None
    grpc_server_key: Path | None = None
    grpc_root_cert: Path | None = None
    # milliseconds, gRPC's keep-alive; an age of 0 means for ever
    grpc_keepalive_time: int = 7_200_000
    grpc_keepalive_timeout: int = 20_000
    grpc_keepalive_permit_without_calls: bool = False
    grpc_http2_min_recv_ping_interval_without_data: int = 300_000
    grpc_http2_max_ping_strikes: int = 2
    grpc_max_connection_age: int = 0
    grpc_max_connection_age_grace: int = 0
    allow_metrics: bool = True
    metrics_address: str = ""
    metrics_port: int = 8002
    metrics_interval_ms: int = 2000
    allow_gpu_metrics: bool = True
    allow_cpu_metrics: bool = True
    metrics_settings: tuple[tuple[str, str], ...] = ()
    pinned_memory_pool_byte_size: int = 256 * 1024**2
    admin_address: str = "127.0.0.1"
    admin_port: int = 8003
    admin_tls_cert: Path | None = None
    admin_tls_key: Path | None = None
    # memory
    allow_client_shm: bool = False
    # life and words
    exit_timeout_secs: int = 30
    log_verbose: int = 0
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_format: str = "default"
    log_file: str = ""
    # tracing: the settings of --trace-config, and the deprecated flags of the same
    trace_config: tuple[tuple[str, str, str], ...] = ()
    trace_level: tuple[TraceLevel, ...] = ()
    trace_file: str | None = None
    trace_rate: int | None = None
    trace_count: int | None = None
    trace_log_frequency: int | None = None

    @property
    def joined(self) -> bool:
        """Tell whether a control plane decides what this node serves."""
        return self.state_dir is not None

    @property
    def effective_metrics_address(self) -> str:
        """The metrics address; as in Triton the HTTP address unless one is given."""
        return self.metrics_address or self.http_address

    def trace_options(self, environment: Mapping[str, str] | None = None) -> TraceOptions:
        """Return what is traced and where to, with OpenTelemetry's batch settings from OTEL_BSP_* variables.

        Raises:
            SettingsError: one sentence.
        """
        deprecated = {
            "file": self.trace_file,
            "rate": self.trace_rate,
            "count": self.trace_count,
            "log_frequency": self.trace_log_frequency,
        }
        source = os.environ if environment is None else environment  # noqa: TID251  this is the settings module
        try:
            return trace_options(self.trace_config, levels=self.trace_level, deprecated=deprecated, environment=source)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def on_request_limits(self) -> OnRequestLimits | None:
        """Return within which limits models are loaded on their first request, None when they are not."""
        if not self.load_on_request:
            return None
        return OnRequestLimits(
            self.model_memory_budget, self.load_on_request_timeout_secs, self.load_on_request_queue_size
        )

    def metrics_config(self) -> MetricsConfig:
        """Return which metrics are asked for. Raises SettingsError."""
        try:
            return metrics_config(self.metrics_settings)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def cache_options(self, environment: Mapping[str, str] | None = None) -> LocalOptions | RedisOptions | None:
        """Return which response cache is asked for, with credentials from TRITONCACHE_REDIS_* variables.

        Raises:
            SettingsError: one sentence.
        """
        settings = self.cache_config
        if self.response_cache_byte_size is not None:
            settings = (CacheSetting("local", "size", str(self.response_cache_byte_size)),)
        source = os.environ if environment is None else environment  # noqa: TID251  this is the settings module
        try:
            return cache_options(settings, source)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def __repr__(self) -> str:
        default = NodeSettings()
        shown = [
            f"{spec.name}={getattr(self, spec.name)!r}"
            for spec in fields(self)
            if getattr(self, spec.name) != getattr(default, spec.name)
        ]
        # Of the join token only its file is a setting, and the password of a cache does not show itself.
        return f"NodeSettings({', '.join(shown)})"

    def check(self) -> None:
        """Refuse contradictions.

        Raises:
            SettingsError: one sentence.
        """
        self._check_role()
        self._check_ports()
        self._check_admin()
        if self.load_models and self.model_control_mode is not ControlMode.EXPLICIT:
            raise SettingsError("--load-model needs --model-control-mode=explicit")
        if "*" in self.load_models and len(self.load_models) > 1:
            raise SettingsError("--load-model=* loads every model, so it must be the only --load-model")
        self._check_on_request()
        for flag, value in (
            ("repository-poll-secs", self.repository_poll_secs),
            ("model-load-retry-count", self.model_load_retry_count),
        ):
            if value < 0:
                raise SettingsError(f"--{flag} must not be negative")
        if self.exit_timeout_secs < 0:
            raise SettingsError("--exit-timeout-secs must not be negative")
        if self.log_format not in list(LogFormat):
            raise SettingsError(f"--log-format is one of {', '.join(LogFormat)}, not '{self.log_format}'")
        self._check_http()
        self._check_grpc()
        if self.metrics_interval_ms <= 0:
            raise SettingsError("--metrics-interval-ms must be positive")
        self.trace_options()
        self.metrics_config()
        self.cache_options()

    def _check_on_request(self) -> None:
        if self.model_memory_budget < 0:
            raise SettingsError("--model-memory-budget must not be negative")
        if self.model_memory_budget and not self.load_on_request:
            raise SettingsError("--model-memory-budget needs --load-on-request: else nothing loads again what leaves")
        if not self.load_on_request:
            return
        if self.joined:
            raise SettingsError("--load-on-request is for stand-alone nodes: on this one the control plane decides")
        if self.model_control_mode is not ControlMode.EXPLICIT:
            raise SettingsError("--load-on-request needs --model-control-mode=explicit")
        if self.model_namespacing:
            raise SettingsError("--load-on-request cannot tell models of one name apart: leave out --model-namespacing")
        if self.load_on_request_timeout_secs < 1 or self.load_on_request_queue_size < 1:
            raise SettingsError("--load-on-request-timeout-secs and --load-on-request-queue-size must be at least 1")

    def _check_http(self) -> None:
        for flag, value in (
            ("max-input-size", self.http_max_input_size),
            ("max-connections", self.http_max_connections),
            ("idle-timeout-secs", self.http_idle_timeout_secs),
            ("read-timeout-secs", self.http_read_timeout_secs),
        ):
            if value <= 0:
                raise SettingsError(f"--http-{flag} must be positive")
        try:
            RestrictedAccess.for_http(self.http_restricted_api)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        if self.http_use_ssl and (self.http_server_cert is None or self.http_server_key is None):
            raise SettingsError("--http-use-ssl needs --http-server-cert and --http-server-key")
        if self.http_use_ssl_mutual and (not self.http_use_ssl or self.http_root_cert is None):
            raise SettingsError("--http-use-ssl-mutual needs --http-use-ssl and --http-root-cert")
        if self.http_server_cert and not self.http_use_ssl:
            raise SettingsError("--http-server-cert needs --http-use-ssl: without it the port would not speak TLS")

    def _check_grpc(self) -> None:
        for flag, value, least in (
            ("max-connections", self.grpc_max_connections, 1),
            ("keepalive-time", self.grpc_keepalive_time, 1),
            ("keepalive-timeout", self.grpc_keepalive_timeout, 1),
            ("http2-min-recv-ping-interval-without-data", self.grpc_http2_min_recv_ping_interval_without_data, 0),
            ("http2-max-ping-strikes", self.grpc_http2_max_ping_strikes, 0),
            ("max-connection-age", self.grpc_max_connection_age, 0),
            ("max-connection-age-grace", self.grpc_max_connection_age_grace, 0),
        ):
            if value < least:
                raise SettingsError(f"--grpc-{flag} must be at least {least}")
        try:
            RestrictedAccess.for_grpc(self.grpc_restricted_protocol)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        has_tls = self.grpc_use_ssl or self.grpc_use_ssl_mutual
        if has_tls and (self.grpc_server_cert is None or self.grpc_server_key is None):
            raise SettingsError("--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key")
        if self.grpc_use_ssl_mutual and self.grpc_root_cert is None:
            raise SettingsError("--grpc-use-ssl-mutual needs --grpc-root-cert")
        if self.grpc_server_cert and not has_tls:
            raise SettingsError("--grpc-server-cert needs --grpc-use-ssl: without it the port would not speak TLS")

    def _check_role(self) -> None:
        if self.joined and (self.model_repositories or self.load_models):
            raise SettingsError(
                "a joined node gets its models from the control plane: give either --model-repository or --state-dir"
            )
        if self.join_url and self.state_dir is None:
            raise SettingsError("--join needs --state-dir, where the node keeps its identity and models")
        if self.join_url and not self.join_url.startswith(("http://", "https://")):
            raise SettingsError(f"--join needs the URL of a control plane, not '{self.join_url}'")
        if not self.joined and not self.model_repositories:
            raise SettingsError("give --model-repository DIR to serve models, or --join URL to join a control plane")
        for repository in self.model_repositories:
            if isinstance(repository, Path) and not repository.is_dir():
                raise SettingsError(f"the model repository {repository} is not a folder")

    def _check_ports(self) -> None:
        taken: dict[tuple[str, int], str] = {}
        for name, used, address, port in (
            ("HTTP", self.allow_http, self.http_address, self.http_port),
            ("gRPC", self.allow_grpc, self.grpc_address, self.grpc_port),
            ("metrics", self.allow_metrics, self.effective_metrics_address, self.metrics_port),
            ("admin", self.joined, self.admin_address, self.admin_port),
        ):
            if not used:
                continue
            if not 0 <= port <= 65535:
                raise SettingsError(f"the {name} port {port} is not a port number")
            other = taken.get((address, port)) if port else None
            if other:
                raise SettingsError(f"{other} and {name} cannot both listen on {address}:{port}")
            taken[(address, port)] = name

    def _check_admin(self) -> None:
        certificate, key = self.admin_tls_cert, self.admin_tls_key
        if (certificate is None) != (key is None):
            raise SettingsError("--admin-tls-cert and --admin-tls-key belong together")
        if self.joined and self.admin_address not in LOOPBACK and certificate is None:
            raise SettingsError(
                f"the admin port on {self.admin_address} needs TLS: give --admin-tls-cert and --admin-tls-key,"
                " or leave it on 127.0.0.1"
            )
        for file in (certificate, key):
            if file is not None and not file.is_file():
                raise SettingsError(f"the file {file} does not exist")


def cloud_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables from which credentials of object stores are taken. They are secrets: show none."""
    source = os.environ if environment is None else environment  # noqa: TID251  this is the settings module
    return {name: source[name] for name in CLOUD_VARIABLES if name in source}


def environment_values(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the texts of ``NODE_*`` variables by flag name: NODE_HTTP_PORT is ``http-port``."""
    source = os.environ if environment is None else environment  # noqa: TID251  this is the settings module
    return {
        name.removeprefix("NODE_").lower().replace("_", "-"): text
        for name, text in source.items()
        if name.startswith("NODE_")
    }
