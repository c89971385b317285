"""The composition root of a node: what is built from what, in which order it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvloop

from serving_node.backends.loader import Backends
from serving_node.compiled import compiled_modules
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signing import Signer
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.dataplane import MANAGED, DataPlane
from serving_node.frontends.admin.frontend import AdminFrontend
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.grpc.connection import GrpcLimits
from serving_node.frontends.grpc.frontend import GrpcFrontend
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http.frontend import HttpFrontend, HttpLimits
from serving_node.frontends.metrics.frontend import MetricsFrontend
from serving_node.frontends.restricted_access import RestrictedAccess
from serving_node.frontends.shared_memory import SharedMemory
from serving_node.observability.host import GpuProbe, HostProbe
from serving_node.observability.logging import LogControl, LogFormat, configure_logging
from serving_node.observability.tracing.tracer import Tracer, TracingUnavailable, open_tracer
from serving_node.observability.visible_gpus import number_by_bus
from serving_node.ports import StartError, admin_tls, cannot_listen, check_ports_free, grpc_tls, http_tls
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.convergence import Limits
from serving_node.repository.desired_state import DesiredState
from serving_node.repository.engine_builds import EngineBuilds
from serving_node.repository.fetcher import BlobFetcher
from serving_node.repository.inventory import take_inventory
from serving_node.repository.local import PollError
from serving_node.repository.membership import Membership, MembershipError
from serving_node.repository.node_loader import NodeLoader
from serving_node.repository.on_request import OnRequestModels
from serving_node.repository.opening import open_source
from serving_node.repository.polled import PollRules
from serving_node.repository.polling import keep_polling
from serving_node.repository.repository import ControlMode, ModelRepository
from serving_node.repository.signers import read_signers
from serving_node.repository.unit_steps import UnitSteps
from serving_node.scheduling.cache_scope import CacheUnavailable, ResponseCaching, open_cache
from serving_node.scheduling.draining import wait_for_inflight
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.response_cache import ResponseCache
from serving_node.scheduling.turns import Turns
from serving_node.settings import NodeSettings, cloud_environment
from serving_node.wire.http1 import Http1Limits
from serving_node.wire.http2 import KeepAlivePolicy

log = structlog.get_logger(__name__)

# Their lines show URLs and headers, and with them presigned signatures and tokens.
_CHATTY_LIBRARIES = ("httpx2", "httpcore2", "hpack", "urllib3")
# How long finished traces may take to their file or collector at the end.
_TRACE_FLUSH_SECONDS = 5.0


# A terminal and a supervisor may both pass on one wish to stop.
_SAME_WISH_SECONDS = 1.0

# Ports by which requests come: closed first at the end. Metrics and administration go on to the last.
_ENTRANCES = ("http", "grpc")


@dataclass(frozen=True, slots=True)
class _Port:
    """One address to listen on."""

    name: str
    address: str
    port: int
    serve: Callable[..., Awaitable[asyncio.Server]]
    stop: Callable[[float], Awaitable[None]]
    tls: ssl.SSLContext | None = None
    retire: Callable[[], None] | None = None  # send clients elsewhere while what runs is finished


@dataclass(slots=True)
class _Joined:
    """What only a node of a control plane has."""

    membership: Membership
    desired: DesiredState
    blobs: BlobStore
    fetcher: BlobFetcher
    builds: EngineBuilds


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a node ended. ``must_end_now``: threads still work, and nothing must wait for them."""

    status: int
    must_end_now: bool = False


class Server:
    """One node, from start to stop. ``serve`` runs it on the current event loop."""

    def __init__(self, settings: NodeSettings, logs: LogControl) -> None:
        self._settings = settings
        self._logs = logs
        self._stop = asyncio.Event()
        self._signalled_at = 0.0
        self._failure = ""
        self._has_abandoned_loads = False
        self._pool = CodecPool()
        self._calls = InnerCalls()
        self._memory = _shared_memory(settings)
        self._bound: dict[str, int] = {}
        self._ports_open: list[_Port] = []
        self._entrances: list[asyncio.Server] = []
        self._background: list[asyncio.Task[None]] = []

    async def serve(self) -> Outcome:
        """Start, serve until a signal, stop in order.

        Raises:
            StartError: a port is taken, a model cannot be loaded, the state folder is in use...
        """
        settings = self._settings
        check_ports_free(settings)
        tracer = _tracer(settings)
        cache = _response_cache(settings)
        backends = self._backends()
        loader = self._loader(cache, backends)
        joined = await self._prepare_joined(loader) if settings.joined else None
        local = None if joined else await self._local_repository(loader)
        repository: DesiredState | ModelRepository | None = joined.desired if joined else local
        assert repository is not None
        limits = settings.on_request_limits()
        dataplane = DataPlane(
            repository,
            server_name=settings.server_id,
            joined=settings.joined,
            logs=self._logs,
            tracer=tracer,
            absent=OnRequestModels(local, limits) if local is not None and limits is not None else None,
        )
        self._calls.open(dataplane, asyncio.get_running_loop().call_soon_threadsafe)
        host = HostProbe(
            settings.metrics_interval_ms / 1000,
            cpu=settings.allow_cpu_metrics,
            gpu=settings.allow_gpu_metrics,
            pinned_bytes=settings.pinned_memory_pool_byte_size,
        )
        cache_families = list if cache is None else cache.families
        metrics = MetricsFrontend(
            dataplane,
            host,
            settings.metrics_config(),
            cache_families=cache_families,
            own_families=backends.metric_families,
        )
        polls = settings.repository_poll_secs if settings.model_control_mode is ControlMode.POLL else 0
        self._watch_signals()
        try:
            await self._start_repository(joined, local)
            if not self._stop.is_set():
                await self._start_ports(self._ports(dataplane, metrics, joined))
                if joined:
                    self._background.append(asyncio.create_task(self._keep_membership(joined.membership)))
                elif local is not None and polls:
                    self._background.append(asyncio.create_task(keep_polling(local.poll, polls)))
                log.info("node.started", **self._bound)
                await self._stop.wait()
        finally:
            is_clean = await self._shut_down(dataplane, repository, joined)
            await tracer.close(_TRACE_FLUSH_SECONDS)
            if cache is not None:
                await cache.close()
            metrics.close()
            self._pool.close()
            self._memory.close()
        if self._failure:
            raise StartError(self._failure)
        return Outcome(0 if is_clean else 1, must_end_now=not is_clean or self._has_abandoned_loads)

    # -- building

    def _backends(self) -> Backends:
        options: dict[str, dict[str, str]] = {}
        for backend, key, value in self._settings.backend_config:
            options.setdefault(backend, {})[key] = value
        if self._settings.state_dir is not None:
            options.setdefault("python", {}).setdefault(
                "environment-folder", str(self._settings.state_dir / "environments")
            )
        settings = self._settings
        return Backends(options, self._calls, settings.in_process_backends, directory=settings.backend_directory)

    def _loader(self, cache: ResponseCache | None, backends: Backends) -> NodeLoader:
        return NodeLoader(
            backends,
            GpuProbe(),
            self._settings.metrics_config(),
            self._calls,
            auto_complete=not self._settings.disable_auto_complete_config,
            gpu_limits=dict(self._settings.model_load_gpu_limit),
            hosts=HostPolicies(self._settings.host_policies),
            turns=None if self._settings.rate_limit == "off" else Turns(self._settings.rate_limit_resources),
            caching=None if cache is None else ResponseCaching(cache, self._calls.origin),
            allow_code=self._settings.allow_model_code,
        )

    async def _local_repository(self, loader: NodeLoader) -> ModelRepository:
        settings = self._settings
        secrets = cloud_environment()
        try:
            sources = [await asyncio.to_thread(open_source, one, secrets) for one in settings.model_repositories]
        except PollError as error:
            raise StartError(str(error)) from error
        return ModelRepository(
            sources,
            loader,
            mode=settings.model_control_mode,
            load_at_start=settings.load_models,
            strict_readiness=settings.strict_readiness,
            parallel_loads=max(settings.model_load_thread_count, 1),
            load_retries=settings.model_load_retry_count,
            namespacing=settings.model_namespacing,
            rules=PollRules(settings.model_config_name, not settings.disable_auto_complete_config),
            loads_on_request=settings.load_on_request,
        )

    async def _prepare_joined(self, loader: NodeLoader) -> _Joined:
        settings = self._settings
        state_dir = settings.state_dir
        assert state_dir is not None
        inventory = await asyncio.to_thread(take_inventory, dict(settings.labels))

        def describe() -> dict[str, Any]:
            return {"name": settings.node_name, "endpoints": self._endpoints(), "inventory": inventory}

        try:
            membership = Membership(
                state_dir, url=settings.join_url, token_file=settings.join_token_file, describe=describe
            )
        except MembershipError as error:
            raise StartError(str(error)) from error
        blobs = BlobStore(state_dir / "blobs", settings.blob_quota_bytes)
        fetcher = BlobFetcher(blobs, base_url=membership.url, token=membership.token)
        believed = await asyncio.to_thread(self._believed_signers)
        steps = UnitSteps(blobs, fetcher, state_dir / "models", believed_signers=believed)
        limits = Limits(fetches=2, loads=2)
        desired = DesiredState(
            state_dir,
            steps,
            loader,
            node=membership.node,
            inventory=inventory,
            limits=limits,
            build_log=loader.build_log,
        )
        builds = EngineBuilds(state_dir / "engines", blobs, GpuProbe().read)
        return _Joined(membership, desired, blobs, fetcher, builds)

    def _believed_signers(self) -> tuple[Signer, ...]:
        path = self._settings.believed_signers
        try:
            return read_signers(path) if path is not None else ()
        except ValueError as error:
            raise StartError(str(error)) from error

    def _ports(self, dataplane: DataPlane, metrics: MetricsFrontend, joined: _Joined | None) -> list[_Port]:
        settings = self._settings
        ports: list[_Port] = []
        if settings.allow_http:
            ports.append(self._http_port(dataplane))
        if settings.allow_grpc:
            ports.append(self._grpc_port(dataplane))
        if settings.allow_metrics:
            address = settings.effective_metrics_address
            listener = metrics.listener
            ports.append(_Port("metrics", address, settings.metrics_port, listener.start, listener.stop))
        if joined is not None:
            admin = AdminFrontend(
                dataplane,
                joined.desired,
                joined.blobs,
                self._logs.buffer,
                joined.builds,
                secret=joined.membership.admin_secret,
            )
            listener, tls = admin.listener, admin_tls(settings)
            ports.append(
                _Port("admin", settings.admin_address, settings.admin_port, listener.start, listener.stop, tls)
            )
        return ports

    def _http_port(self, dataplane: DataPlane) -> _Port:
        settings = self._settings
        seconds = settings.http_read_timeout_secs
        connection = Http1Limits(
            idle_seconds=settings.http_idle_timeout_secs, head_seconds=seconds, body_seconds=seconds
        )
        http = HttpFrontend(
            dataplane,
            HttpLimits(settings.http_max_input_size, settings.http_max_connections, connection),
            self._pool,
            restricted=RestrictedAccess.for_http(settings.http_restricted_api),
            forwarding=HeaderForwarding(settings.http_header_forward_pattern),
            memory=self._memory,
        )
        serve = partial(http.serve, reuse_port=settings.reuse_http_port)
        return _Port("http", settings.http_address, settings.http_port, serve, http.stop, http_tls(settings))

    def _grpc_port(self, dataplane: DataPlane) -> _Port:
        settings = self._settings
        keep_alive = KeepAlivePolicy(
            ping_seconds=settings.grpc_keepalive_time / 1000,
            timeout_seconds=settings.grpc_keepalive_timeout / 1000,
            permit_without_calls=settings.grpc_keepalive_permit_without_calls,
            min_ping_interval_seconds=settings.grpc_http2_min_recv_ping_interval_without_data / 1000,
            max_strikes=settings.grpc_http2_max_ping_strikes,
            max_age_seconds=settings.grpc_max_connection_age / 1000,
            max_age_grace_seconds=settings.grpc_max_connection_age_grace / 1000,
        )
        grpc = GrpcFrontend(
            dataplane,
            GrpcLimits(keep_alive=keep_alive, max_connections=settings.grpc_max_connections),
            self._pool,
            memory=self._memory,
            restricted=RestrictedAccess.for_grpc(settings.grpc_restricted_protocol),
            forwarding=HeaderForwarding(settings.grpc_header_forward_pattern),
            compression=settings.grpc_infer_response_compression_level,
        )
        serve = partial(grpc.serve, reuse_port=settings.reuse_grpc_port)
        tls = grpc_tls(settings)
        return _Port("grpc", settings.grpc_address, settings.grpc_port, serve, grpc.stop, tls, grpc.retire)

    def _endpoints(self) -> dict[str, str]:
        """Return the URLs by which others reach the ports of this node."""
        settings = self._settings
        addresses = {
            "http": settings.http_address,
            "grpc": settings.grpc_address,
            "metrics": settings.effective_metrics_address,
            "admin": settings.admin_address,
        }
        endpoints: dict[str, str] = {}
        for name, port in self._bound.items():
            address = addresses[name]
            host = settings.advertise_host or (socket.gethostname() if address in ("0.0.0.0", "::", "") else address)  # noqa: S104
            has_tls = {
                "admin": settings.admin_tls_cert is not None,
                "http": settings.http_use_ssl,
                "grpc": settings.grpc_use_ssl or settings.grpc_use_ssl_mutual,
            }
            scheme = "https" if has_tls.get(name) else "http"
            endpoints[name] = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        return endpoints

    # -- starting

    async def _start_repository(self, joined: _Joined | None, local: ModelRepository | None) -> None:
        if joined is not None:
            await joined.desired.restore()
            return
        assert local is not None
        starting = asyncio.ensure_future(local.start())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            self._has_abandoned_loads = True
            return
        failures = starting.result()
        if failures and self._settings.exit_on_error:
            raise StartError("; ".join(failure.strip() for failure in failures))

    async def _start_ports(self, ports: Sequence[_Port]) -> None:
        for port in ports:
            try:
                server = await port.serve(port.address, port.port, tls=port.tls)
            except OSError as error:
                raise StartError(cannot_listen(port.name, port.address, port.port, error)) from error
            self._ports_open.append(port)
            if port.name in _ENTRANCES:
                self._entrances.append(server)
            self._bound[port.name] = server.sockets[0].getsockname()[1]

    async def _keep_membership(self, membership: Membership) -> None:
        had_joined = bool(membership.node())
        try:
            await membership.run()
        except MembershipError as error:
            log.error("membership.refused", reason=str(error))
            if not had_joined:
                # A node that never joined has nothing to serve: better to say so than to wait for nobody.
                self._failure = str(error)
                self._stop.set()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        """Stop; whoever asks again after a moment does not want to wait."""
        if not self._stop.is_set():
            self._signalled_at = time.monotonic()
            self._stop.set()
        elif time.monotonic() - self._signalled_at >= _SAME_WISH_SECONDS:
            log.error("A second signal came. Exiting immediately.")
            sys.stderr.flush()
            os._exit(1)

    # -- stopping

    async def _shut_down(
        self, dataplane: DataPlane, repository: DesiredState | ModelRepository, joined: _Joined | None
    ) -> bool:
        """Stop in order within one countdown; tell whether everything ended by itself.

        No new connections first. Open ones of HTTP are served while requests run, so that clients can end what they
        began; those of gRPC are told to go elsewhere. Then the connections end, then the models.
        """
        deadline = time.monotonic() + self._settings.exit_timeout_secs
        log.info("node.stopping", seconds=self._settings.exit_timeout_secs)

        def left() -> float:
            return max(deadline - time.monotonic(), 0.0)

        dataplane.stop()
        for task in self._background:
            task.cancel()
        for server in self._entrances:
            server.close()
        for port in self._ports_open:
            if port.retire is not None:
                port.retire()
        if self._ports_open:
            await wait_for_inflight(repository.models, self._settings.exit_timeout_secs)
        if joined is not None:
            joined.desired.wake_waiters()
            await joined.builds.close()
        await asyncio.gather(*(port.stop(left()) for port in self._ports_open))
        log.info("All models are stopped, unloading models")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(repository.close(left()), left() + 1.0)
        if joined is not None:
            joined.fetcher.close()
        is_clean = time.monotonic() <= deadline
        if not is_clean:
            log.error("Exit timeout expired. Exiting immediately.")
        log.info("node.stopped", clean=is_clean)
        return is_clean


def run(settings: NodeSettings, notes: Sequence[str] = ()) -> int:
    """Run a node until a signal. Returns the exit status; says on standard error why a start failed.

    When threads still work after the exit timeout (an engine that loads, a download), the process ends here.
    """
    _raise_file_limit()
    number_by_bus()
    try:
        with _locked(settings.state_dir), contextlib.ExitStack() as stack:
            logs = _configure_logs(settings, stack)
            log.info("node.starting", settings=repr(settings), pid=os.getpid(), compiled_modules=compiled_modules())
            for note in notes:
                log.warning("node.note", text=note)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                outcome = runner.run(_serve(settings, logs))
                if outcome.must_end_now:
                    sys.stderr.flush()
                    os._exit(outcome.status)
            return outcome.status
    except StartError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _raise_file_limit() -> None:
    """Allow as many open files, and so connections, as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))


async def _serve(settings: NodeSettings, logs: LogControl) -> Outcome:
    return await Server(settings, logs).serve()


def _configure_logs(settings: NodeSettings, stack: contextlib.ExitStack) -> LogControl:
    stream = None
    if settings.log_file:
        try:
            opened = Path(settings.log_file).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115  the stack closes
            stream = stack.enter_context(opened)
        except OSError as error:
            raise StartError(f"cannot write the log file {settings.log_file}: {error.strerror}") from error
    for library in _CHATTY_LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    control = LogControl(log_file=settings.log_file, log_format=LogFormat(settings.log_format))
    configure_logging(control=control, stream=stream)
    control.update(
        {
            "log_info": settings.log_info,
            "log_warning": settings.log_warning,
            "log_error": settings.log_error,
            "log_verbose_level": max(settings.log_verbose, 0),
        }
    )
    return control


@contextlib.contextmanager
def _locked(state_dir: Path | None) -> Iterator[None]:
    """Hold the state folder: two nodes in one folder would destroy each other's state."""
    if state_dir is None:
        yield
        return
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"cannot use the state folder {state_dir}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StartError(f"another node runs in the state folder {state_dir}") from None
    finally:
        os.close(descriptor)


def _tracer(settings: NodeSettings) -> Tracer:
    try:
        return open_tracer(settings.trace_options())
    except TracingUnavailable as error:
        raise StartError(str(error)) from error


def _response_cache(settings: NodeSettings) -> ResponseCache | None:
    try:
        return open_cache(settings.cache_options())
    except CacheUnavailable as error:
        raise StartError(str(error)) from error


def _shared_memory(settings: NodeSettings) -> SharedMemory:
    if settings.joined:
        return SharedMemory(InferenceError(ErrorCode.UNAVAILABLE, MANAGED))
    return SharedMemory() if settings.allow_client_shm else SharedMemory.disabled()
