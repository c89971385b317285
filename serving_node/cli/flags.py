"""Every flag of the node, by subject: the whole table. To add a flag: a field in ``settings.py`` and a line here.

Source: ``tritonserver --help``, whose names and meanings these are; the last subject is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_node.cli.reading import (
    backend_config,
    boolean,
    compression_level,
    config_name,
    control_mode,
    device_amount,
    header_pattern,
    host_policy,
    integer,
    label,
    level,
    number,
    one_of,
    port_range,
    repository,
    resource_limit,
)
from serving_node.frontends.restricted_access import parse_group
from serving_node.observability.metrics_config import read_metrics_setting
from serving_node.observability.tracing.options import read_trace_config, read_trace_level
from serving_node.scheduling.cache_options import read_cache_setting


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. ``setting`` is the field of NodeSettings that it fills; ``read`` makes its value from the text.

    A flag without a setting is understood and changes nothing: ``why`` says so. If it is ``refused`` it may only be
    given as false or with its default, because starting without what it asks for would harm.
    """

    name: str
    setting: str
    read: Callable[[str], Any]
    help: str
    repeat: bool = False
    separator: str = ","  # between values in the environment
    instead: str = ""  # what to use, when the flag is deprecated
    warning: str = ""  # Triton's sentence then, where it is not the usual one
    why: str = ""
    refused: bool = False


def _idle(name: str, read: Callable[[str], Any], why: str) -> Flag:
    """Return a flag of tritonserver's that has nothing to act on here."""
    return Flag(name, "", read, "no effect", repeat=True, why=why)


def _refused(name: str, why: str, read: Callable[[str], Any] = boolean) -> Flag:
    """Return a flag of tritonserver's that this node cannot obey and must not ignore."""
    return Flag(name, "", read, "refused", repeat=True, why=why, refused=True)


_OPEN = "starting without it would leave a port open"
_NO_POOL = "memory is not pooled by device here"
_NO_THREADS = "one event loop reads all connections"
_IN_PROCESS = "what it would find there is part of this node"

GROUPS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    (
        "Server",
        (
            Flag("id", "server_id", str, "name of this server in its metadata"),
            Flag("exit-timeout-secs", "exit_timeout_secs", integer, "seconds for running requests at the end"),
        ),
    ),
    (
        "Logging",
        (
            Flag("log-verbose", "log_verbose", level, "verbosity, 0 is off"),
            Flag("log-info", "log_info", boolean, "log information"),
            Flag("log-warning", "log_warning", boolean, "log warnings"),
            Flag("log-error", "log_error", boolean, "log errors"),
            Flag("log-format", "log_format", str, "default, ISO8601 or json"),
            Flag("log-file", "log_file", str, "file to log to instead of standard error"),
        ),
    ),
    (
        "Model repository",
        (
            Flag(
                "model-repository",
                "model_repositories",
                repository,
                "folder of models to serve, or s3://, gs://, as:// and where it is there; repeatable",
                repeat=True,
            ),
            Flag("exit-on-error", "exit_on_error", boolean, "exit when a model fails at the start"),
            Flag("disable-auto-complete-config", "disable_auto_complete_config", boolean, "take configs as they are"),
            Flag("strict-readiness", "strict_readiness", boolean, "ready only when every model is"),
            Flag("model-control-mode", "model_control_mode", control_mode, "none, poll or explicit"),
            Flag("repository-poll-secs", "repository_poll_secs", integer, "in poll mode, seconds between two looks"),
            Flag("load-model", "load_models", str, "model to load at start in explicit mode; repeatable", repeat=True),
            Flag(
                "model-config-name",
                "model_config_name",
                config_name,
                "read configs/<name>.pbtxt of a model, if it exists, instead of config.pbtxt",
            ),
            Flag("model-load-thread-count", "model_load_thread_count", integer, "models loaded at the same time"),
            Flag("model-load-retry-count", "model_load_retry_count", integer, "how often a failed load is tried again"),
            Flag("model-namespacing", "model_namespacing", boolean, "let a name stand in several repositories"),
            _idle("enable-peer-access", boolean, _NO_POOL),
        ),
    ),
    (
        "Load on first request",
        (
            Flag(
                "load-on-request",
                "load_on_request",
                boolean,
                "in explicit mode, load a model when the first request for it comes",
            ),
            Flag(
                "load-on-request-timeout-secs",
                "load_on_request_timeout_secs",
                integer,
                "seconds that a request waits for its model",
            ),
            Flag(
                "load-on-request-queue-size",
                "load_on_request_queue_size",
                integer,
                "requests that may wait for models; more are refused",
            ),
            Flag(
                "model-memory-budget",
                "model_memory_budget",
                integer,
                "bytes that all models may take; those unused for the longest time are unloaded for others; 0 for any",
            ),
        ),
    ),
    (
        "HTTP",
        (
            Flag("allow-http", "allow_http", boolean, "serve HTTP"),
            Flag("http-address", "http_address", str, "address of the HTTP port"),
            Flag("http-port", "http_port", integer, "HTTP port"),
            Flag("reuse-http-port", "reuse_http_port", boolean, "let other processes listen on the HTTP port too"),
            Flag(
                "http-header-forward-pattern",
                "http_header_forward_pattern",
                header_pattern,
                "forward headers whose name this regular expression matches to models as parameters",
            ),
            _idle("http-thread-count", integer, _NO_THREADS),
            Flag("http-max-input-size", "http_max_input_size", integer, "largest request body in bytes"),
            Flag(
                "http-restricted-api",
                "http_restricted_api",
                parse_group,
                "api,api:header=value: parts of the protocol that want this header; repeatable, ';' in the environment",
                repeat=True,
                separator=";",
            ),
            Flag("http-use-ssl", "http_use_ssl", boolean, "speak TLS on the HTTP port"),
            Flag("http-use-ssl-mutual", "http_use_ssl_mutual", boolean, "ask HTTP clients for a certificate"),
            Flag("http-server-cert", "http_server_cert", Path, "certificate chain of the HTTP port, PEM"),
            Flag("http-server-key", "http_server_key", Path, "private key of the HTTP port, PEM"),
            Flag("http-root-cert", "http_root_cert", Path, "certificates that sign those of HTTP clients, PEM"),
            Flag("http-max-connections", "http_max_connections", integer, "most HTTP connections at a time"),
            Flag("http-idle-timeout-secs", "http_idle_timeout_secs", integer, "close idle HTTP connections after"),
            Flag("http-read-timeout-secs", "http_read_timeout_secs", integer, "time for a head, and extra for a body"),
        ),
    ),
    (
        "gRPC",
        (
            Flag("allow-grpc", "allow_grpc", boolean, "serve gRPC"),
            Flag("grpc-address", "grpc_address", str, "address of the gRPC port"),
            Flag("grpc-port", "grpc_port", integer, "gRPC port"),
            Flag("reuse-grpc-port", "reuse_grpc_port", boolean, "let other processes listen on the gRPC port too"),
            Flag(
                "grpc-header-forward-pattern",
                "grpc_header_forward_pattern",
                header_pattern,
                "forward metadata whose key this regular expression matches to models as parameters",
            ),
            _idle("grpc-infer-thread-count", integer, _NO_THREADS),
            _idle("grpc-infer-allocation-pool-size", integer, _NO_POOL),
            _idle("grpc-max-response-pool-size", integer, _NO_POOL),
            Flag("grpc-use-ssl", "grpc_use_ssl", boolean, "speak TLS on the gRPC port"),
            Flag("grpc-use-ssl-mutual", "grpc_use_ssl_mutual", boolean, "speak TLS and ask clients for a certificate"),
            Flag("grpc-server-cert", "grpc_server_cert", Path, "certificate chain of the gRPC port, PEM"),
            Flag("grpc-server-key", "grpc_server_key", Path, "private key of the gRPC port, PEM"),
            Flag("grpc-root-cert", "grpc_root_cert", Path, "certificates that sign those of gRPC clients, PEM"),
            Flag(
                "grpc-infer-response-compression-level",
                "grpc_infer_response_compression_level",
                compression_level,
                "compress answers: none, low, medium or high",
            ),
            Flag("grpc-keepalive-time", "grpc_keepalive_time", integer, "ping a silent client after, ms"),
            Flag("grpc-keepalive-timeout", "grpc_keepalive_timeout", integer, "wait for its answer, ms"),
            Flag(
                "grpc-keepalive-permit-without-calls",
                "grpc_keepalive_permit_without_calls",
                boolean,
                "ping, and be pinged, without calls too",
            ),
            _idle("grpc-http2-max-pings-without-data", integer, "keep-alive pings, the only ones sent, do not count"),
            Flag(
                "grpc-http2-min-recv-ping-interval-without-data",
                "grpc_http2_min_recv_ping_interval_without_data",
                integer,
                "a client that pings more often, without data between, earns a strike, ms",
            ),
            Flag(
                "grpc-http2-max-ping-strikes",
                "grpc_http2_max_ping_strikes",
                integer,
                "strikes after which a client is sent away, 0 for any number",
            ),
            Flag("grpc-max-connection-age", "grpc_max_connection_age", integer, "send clients elsewhere after, ms"),
            Flag(
                "grpc-max-connection-age-grace",
                "grpc_max_connection_age_grace",
                integer,
                "time for their running calls then, ms",
            ),
            Flag(
                "grpc-restricted-protocol",
                "grpc_restricted_protocol",
                parse_group,
                "api,api:key=value: parts that want this metadata, whose key clients prefix with"
                " triton-grpc-protocol-; repeatable, ';' in the environment",
                repeat=True,
                separator=";",
            ),
            Flag("grpc-max-connections", "grpc_max_connections", integer, "most gRPC connections at a time"),
        ),
    ),
    (
        "SageMaker and Vertex AI",
        (
            _refused("allow-sagemaker", "this node does not speak it"),
            _idle("sagemaker-port", integer, "SageMaker is not served"),
            _idle("sagemaker-safe-port-range", port_range, "SageMaker is not served"),
            _idle("sagemaker-thread-count", integer, "SageMaker is not served"),
            _refused("allow-vertex-ai", "this node does not speak it"),
            _idle("vertex-ai-port", integer, "Vertex AI is not served"),
            _idle("vertex-ai-thread-count", integer, "Vertex AI is not served"),
            _idle("vertex-ai-default-model", str, "Vertex AI is not served"),
        ),
    ),
    (
        "Metrics",
        (
            Flag("allow-metrics", "allow_metrics", boolean, "serve metrics"),
            Flag("allow-gpu-metrics", "allow_gpu_metrics", boolean, "metrics of the machine's GPUs"),
            Flag("allow-cpu-metrics", "allow_cpu_metrics", boolean, "metrics of the machine's CPU and memory"),
            Flag("metrics-address", "metrics_address", str, "address of the metrics port, by default that of HTTP"),
            Flag("metrics-port", "metrics_port", integer, "metrics port"),
            Flag("metrics-interval-ms", "metrics_interval_ms", integer, "how often CPU and GPU are looked at"),
            Flag(
                "metrics-config",
                "metrics_settings",
                read_metrics_setting,
                "counter_latencies, histogram_latencies, summary_latencies (=true or false),"
                " summary_quantiles=quantile:error,...; repeatable",
                repeat=True,
                separator=";",
            ),
        ),
    ),
    (
        "Tracing",
        (
            Flag(
                "trace-config",
                "trace_config",
                read_trace_config,
                "mode=, level=, rate=, count=, triton,file=, triton,log-frequency=, opentelemetry,url=,"
                " opentelemetry,resource=key=value, opentelemetry,bsp_max_queue_size=,"
                " opentelemetry,bsp_schedule_delay=, opentelemetry,bsp_max_export_batch_size=; repeatable",
                repeat=True,
                separator=";",
            ),
            Flag("trace-file", "trace_file", str, "deprecated", instead="--trace-config triton,file="),
            Flag(
                "trace-level",
                "trace_level",
                read_trace_level,
                "deprecated",
                instead="--trace-config level=",
                repeat=True,
            ),
            Flag("trace-rate", "trace_rate", integer, "deprecated", instead="--trace-config rate="),
            Flag("trace-count", "trace_count", integer, "deprecated", instead="--trace-config count="),
            Flag(
                "trace-log-frequency",
                "trace_log_frequency",
                integer,
                "deprecated",
                instead="--trace-config triton,log-frequency=",
            ),
        ),
    ),
    (
        "Backends and repository agents",
        (
            Flag(
                "backend-directory", "backend_directory", Path, "folder with backends written in Python: NAME/model.py"
            ),
            Flag("backend-config", "backend_config", backend_config, "backend,key=value; repeatable", repeat=True),
            Flag(
                "in-process-backend",
                "in_process_backends",
                str,
                "backend of an installed package that may run in the node's own process, if it says that it can;"
                " repeatable",
                repeat=True,
            ),
            Flag("allow-model-code", "allow_model_code", boolean, "load models that are code, in worker processes"),
            _idle("repoagent-directory", str, _IN_PROCESS),
        ),
    ),
    (
        "Response cache and rate limiter",
        (
            Flag(
                "cache-config",
                "cache_config",
                read_cache_setting,
                "local,size=bytes: keep answers of models with 'response_cache' in memory; or redis,host= redis,port="
                " and more: on a Redis server; repeatable, ';' in the environment",
                repeat=True,
                separator=";",
            ),
            _idle("cache-directory", str, _IN_PROCESS),
            Flag(
                "response-cache-byte-size",
                "response_cache_byte_size",
                integer,
                "deprecated",
                instead="--cache-config local,size=",
                warning="Warning: '--response-cache-byte-size' has been deprecated! This will default to the 'local'"
                " cache implementation with the provided byte size for its config. Please use '--cache-config' instead."
                " The equivalent --cache-config CLI args would be: '--cache-config=local,size={value}'",
            ),
            Flag(
                "rate-limit",
                "rate_limit",
                one_of(("execution_count", "off")),
                "off, or execution_count: instances run when the resources that they name are free, those that ran"
                " least first",
            ),
            Flag(
                "rate-limit-resource",
                "rate_limit_resources",
                resource_limit,
                "name:count[:device]: how much of a resource there is, on one device or on each; repeatable",
                repeat=True,
            ),
        ),
    ),
    (
        "Memory and devices",
        (
            Flag("allow-client-shm", "allow_client_shm", boolean, "let clients register shared memory"),
            Flag(
                "pinned-memory-pool-byte-size",
                "pinned_memory_pool_byte_size",
                integer,
                "size that the metrics show; no such pool is needed here",
            ),
            _idle("cuda-memory-pool-byte-size", device_amount, _NO_POOL),
            _idle("cuda-virtual-address-size", device_amount, _NO_POOL),
            _idle("min-supported-compute-capability", number, "engines choose the GPUs that they can use"),
            _idle("buffer-manager-thread-count", integer, "tensors are not copied by the server"),
            Flag(
                "host-policy",
                "host_policies",
                host_policy,
                "name,cpu-cores=first-last or name,numa-node=number: where instance groups run that name this policy;"
                " repeatable, ';' in the environment",
                repeat=True,
                separator=";",
            ),
            Flag(
                "model-load-gpu-limit",
                "model_load_gpu_limit",
                device_amount,
                "device:part of its memory; no model is loaded while more is in use; repeatable",
                repeat=True,
            ),
        ),
    ),
    (
        "Joining a control plane",
        (
            Flag("join", "join_url", str, "URL of a control plane to join"),
            Flag("join-token-file", "join_token_file", Path, "file with the join token"),
            Flag("state-dir", "state_dir", Path, "folder for identity, desired state and blobs of a joined node"),
            Flag("node-name", "node_name", str, "name under which the node joins, by default the host name"),
            Flag("label", "labels", label, "key=value that fleets select by; repeatable", repeat=True),
            Flag("blob-quota-bytes", "blob_quota_bytes", integer, "largest size of the blob store, 0 for no limit"),
            Flag(
                "believed-signers",
                "believed_signers",
                Path,
                "JSON list of those whose signatures count; then nothing else than what one of them signed is loaded",
            ),
            Flag("advertise-host", "advertise_host", str, "host name that the control plane reaches this node by"),
            Flag("admin-address", "admin_address", str, "address of the admin port; needs TLS unless it is loopback"),
            Flag("admin-port", "admin_port", integer, "admin port of a joined node"),
            Flag("admin-tls-cert", "admin_tls_cert", Path, "certificate chain of the admin port, PEM"),
            Flag("admin-tls-key", "admin_tls_key", Path, "private key of the admin port, PEM"),
        ),
    ),
)
FLAGS: dict[str, Flag] = {flag.name: flag for _, flags in GROUPS for flag in flags}
ALIASES = {"model-store": "model-repository"}
# Deprecated, and the opposite of nothing: it gives way to the flag that it stands for.
STRICT_MODEL_CONFIG = "strict-model-config"
