"""The command line: ``tritonserver``'s flags by their names, and ours for joining a control plane."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from serving_node.repository.repository import ControlMode
from serving_node.settings import NodeSettings, SettingsError, environment_values

_TRUE = ("true", "on", "1")
_FALSE = ("false", "off", "0")


@dataclass(frozen=True, slots=True)
class _Flag:
    """One flag: the setting that it fills, how its text is read, and its help."""

    name: str
    setting: str
    read: Callable[[str], Any]
    help: str
    repeat: bool = False


def _bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"'{text}' is neither true nor false")


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def _mode(text: str) -> ControlMode:
    try:
        return ControlMode(text)
    except ValueError:
        raise ValueError(f"'{text}' is not one of none, poll, explicit") from None


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"'{text}' is not of the form key=value")
    return key, value


def _backend_config(text: str) -> tuple[str, str, str]:
    backend, comma, setting = text.partition(",")
    key, equals, value = setting.partition("=")
    if not comma:
        backend, (key, equals, value) = "", text.partition("=")
    if not key or not equals:
        raise ValueError(f"'{text}' is not of the form backend,key=value")
    return backend, key, value


_FLAGS = (
    _Flag("model-repository", "model_repositories", Path, "folder of models to serve; repeatable", repeat=True),
    _Flag("model-control-mode", "model_control_mode", _mode, "none, poll or explicit"),
    _Flag("load-model", "load_models", str, "model to load at start in explicit mode; repeatable", repeat=True),
    _Flag("id", "server_id", str, "name of this server in its metadata"),
    _Flag("exit-timeout-secs", "exit_timeout_secs", _int, "seconds for running requests at the end"),
    _Flag("exit-on-error", "exit_on_error", _bool, "exit when a model fails at the start"),
    _Flag("strict-readiness", "strict_readiness", _bool, "ready only when every model is"),
    _Flag("disable-auto-complete-config", "disable_auto_complete_config", _bool, "take configs as they are"),
    _Flag("model-load-thread-count", "model_load_thread_count", _int, "models loaded at the same time"),
    _Flag("backend-config", "backend_config", _backend_config, "backend,key=value; repeatable", repeat=True),
    _Flag("allow-http", "allow_http", _bool, "serve HTTP"),
    _Flag("http-address", "http_address", str, "address of the HTTP port"),
    _Flag("http-port", "http_port", _int, "HTTP port"),
    _Flag("http-max-input-size", "http_max_input_size", _int, "largest request body in bytes"),
    _Flag("allow-grpc", "allow_grpc", _bool, "serve gRPC"),
    _Flag("grpc-address", "grpc_address", str, "address of the gRPC port"),
    _Flag("grpc-port", "grpc_port", _int, "gRPC port"),
    _Flag("allow-metrics", "allow_metrics", _bool, "serve metrics"),
    _Flag("metrics-address", "metrics_address", str, "address of the metrics port, by default that of HTTP"),
    _Flag("metrics-port", "metrics_port", _int, "metrics port"),
    _Flag("metrics-interval-ms", "metrics_interval_ms", _int, "how often CPU and GPU are looked at"),
    _Flag("log-verbose", "log_verbose", _int, "verbosity, 0 is off"),
    _Flag("log-info", "log_info", _bool, "log information"),
    _Flag("log-warning", "log_warning", _bool, "log warnings"),
    _Flag("log-error", "log_error", _bool, "log errors"),
    _Flag("log-format", "log_format", str, "default, ISO8601 or json"),
    _Flag("log-file", "log_file", str, "file to log to instead of standard error"),
    _Flag("join", "join_url", str, "URL of a control plane to join"),
    _Flag("join-token-file", "join_token_file", Path, "file with the join token"),
    _Flag("state-dir", "state_dir", Path, "folder for identity, desired state and blobs of a joined node"),
    _Flag("node-name", "node_name", str, "name under which the node joins, by default the host name"),
    _Flag("label", "labels", _label, "key=value that fleets select by; repeatable", repeat=True),
    _Flag("blob-quota-bytes", "blob_quota_bytes", _int, "largest size of the blob store, 0 for no limit"),
    _Flag("advertise-host", "advertise_host", str, "host name that the control plane reaches this node by"),
    _Flag("admin-address", "admin_address", str, "address of the admin port; needs TLS unless it is loopback"),
    _Flag("admin-port", "admin_port", _int, "admin port of a joined node"),
    _Flag("admin-tls-cert", "admin_tls_cert", Path, "certificate chain of the admin port, PEM"),
    _Flag("admin-tls-key", "admin_tls_key", Path, "private key of the admin port, PEM"),
)
_ALIASES = {"model-store": "model-repository"}
# Flags of tritonserver that are understood but change nothing here yet; said so at the start.
_WITHOUT_EFFECT_TEXT = """
    allow-client-shm allow-cpu-metrics allow-gpu-metrics allow-sagemaker allow-vertex-ai backend-directory
    buffer-manager-thread-count cache-config cache-directory cuda-memory-pool-byte-size cuda-virtual-address-size
    enable-peer-access grpc-header-forward-pattern grpc-http2-max-ping-strikes grpc-http2-max-pings-without-data
    grpc-http2-min-recv-ping-interval-without-data grpc-infer-allocation-pool-size
    grpc-infer-response-compression-level grpc-infer-thread-count grpc-keepalive-permit-without-calls
    grpc-keepalive-time grpc-keepalive-timeout grpc-max-connection-age grpc-max-connection-age-grace
    grpc-max-response-pool-size host-policy http-header-forward-pattern http-thread-count metrics-config
    min-supported-compute-capability model-config-name model-load-gpu-limit model-load-retry-count model-namespacing
    pinned-memory-pool-byte-size rate-limit rate-limit-resource repoagent-directory repository-poll-secs
    response-cache-byte-size reuse-grpc-port reuse-http-port sagemaker-port sagemaker-safe-port-range
    sagemaker-thread-count trace-config trace-count trace-file trace-level trace-log-frequency trace-rate
    vertex-ai-default-model vertex-ai-port vertex-ai-thread-count
"""
_WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_TEXT.split())
# Flags that protect something: ignoring one would be worse than not starting.
_NOT_YET_TEXT = """
    grpc-restricted-protocol grpc-root-cert grpc-server-cert grpc-server-key grpc-use-ssl grpc-use-ssl-mutual
    http-restricted-api
"""
_NOT_YET = frozenset(_NOT_YET_TEXT.split())


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What was asked for. ``notes`` are sentences for the person who started the node."""

    settings: NodeSettings
    notes: tuple[str, ...] = ()


def parse(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> CommandLine:
    """Return the settings from arguments over environment over defaults.

    Raises:
        SettingsError: one sentence.
    """
    given, notes = _read_arguments(arguments)
    from_environment = environment_values(environment)
    values: dict[str, Any] = {}
    for flag in _FLAGS:
        if flag.name in given:
            texts, source = given[flag.name], f"--{flag.name}"
        elif flag.name in from_environment:
            text = from_environment[flag.name]
            texts = [part for part in text.split(",") if part] if flag.repeat else [text]
            source = f"NODE_{flag.name.upper().replace('-', '_')}"
        else:
            continue
        try:
            read = [flag.read(text) for text in texts]
        except ValueError as error:
            raise SettingsError(f"{source}: {error}") from None
        values[flag.setting] = tuple(read) if flag.repeat else read[-1]
    settings = NodeSettings(**values)
    settings.check()
    if settings.model_control_mode is ControlMode.POLL:
        notes.append("--model-control-mode=poll: changes in the repository are not looked for yet")
    return CommandLine(settings, tuple(notes))


def _read_arguments(arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts given for each of our flags, and notes about those without effect."""
    known = {flag.name for flag in _FLAGS}
    given: dict[str, list[str]] = {}
    notes: list[str] = []
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        name, equals, text = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or not name:
            raise SettingsError(f"'{argument}' is not a flag; see --help")
        name = _ALIASES.get(name, name)
        if name == "strict-model-config":
            notes.append("--strict-model-config is deprecated: use --disable-auto-complete-config")
            name = "disable-auto-complete-config"
        if name not in known and name not in _WITHOUT_EFFECT and name not in _NOT_YET:
            raise SettingsError(f"unknown flag --{name}; see --help")
        if not equals:
            if queue and not queue[0].startswith("--"):
                text = queue.pop(0)
            elif name in _SWITCHES or name in _WITHOUT_EFFECT or name in _NOT_YET:
                text = "true"
            else:
                raise SettingsError(f"--{name} needs a value")
        if name in _NOT_YET and text.lower() not in _FALSE:
            raise SettingsError(f"--{name} is not supported yet, and starting without it would leave a port open")
        if name in _WITHOUT_EFFECT or name in _NOT_YET:
            notes.append(f"--{name} has no effect yet")
        else:
            given.setdefault(name, []).append(text)
    return given, notes


# tritonserver takes these without a value too.
_SWITCHES = frozenset(flag.name for flag in _FLAGS if flag.read is _bool)


def _help() -> str:
    parser = argparse.ArgumentParser(
        prog="python -m serving_node",
        description="Serve models by the open v2 inference protocol over HTTP and gRPC.",
        epilog="Every flag can be given as NODE_<FLAG> in the environment. Flags of tritonserver that are not"
        " listed are accepted and change nothing yet.",
    )
    for flag in _FLAGS:
        metavar = flag.name.rsplit("-", 1)[-1].upper()
        parser.add_argument(f"--{flag.name}", metavar=metavar, help=flag.help.replace("%", "%%"))
    return parser.format_help()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Start a node and end the process with its exit status."""
    chosen = list(sys.argv[1:] if arguments is None else arguments)
    if any(argument in ("-h", "--help") for argument in chosen):
        sys.stdout.write(_help())
        sys.exit(0)
    try:
        command_line = parse(chosen)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    # Imported late: --help and refusals need no event loop, engine or socket.
    from serving_node.server import run

    sys.exit(run(command_line.settings, command_line.notes))
