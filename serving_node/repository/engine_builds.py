"""TensorRT engines built on this node, as tasks: one at a time, each in a process of its own, with progress.

The result is a blob of the node, remembered under a key of everything it depends on: the files, the plan, the version
of TensorRT and the kind of GPU. Concurrency: everything here happens on the event loop; what blocks is in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from serving_node.backends.python.settings import worker_environment
from serving_node.backends.tensorrt.building.worker import Job
from serving_node.contract.control import FileRef
from serving_node.contract.digests import manifest_digest, plan_digest
from serving_node.contract.engine_builds import BuildOrder, BuildState, BuildStatus, check_order
from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.observability.host import GpuReading
from serving_node.repository.blob_store import BlobError, BlobStore, file_sha256
from serving_node.repository.inventory import installed_version

log = structlog.get_logger(__name__)

PLAN_FILE = "model.plan"
_WORKER = (sys.executable, "-s", "-m", "serving_node.backends.tensorrt.building.worker")
_GRACE_SECONDS = 10.0
_REMEMBERED = 64
_LONGEST_LINE = 1 << 20
_NO_TENSORRT = "this node builds no engines: TensorRT is not installed on it"


@dataclass(slots=True)
class _Build:
    """A build and what runs for it."""

    order: BuildOrder
    status: BuildStatus
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    is_cancelled: bool = False


class EngineBuilds:
    """All builds of a node since its start. ``gpus`` reads the GPUs; ``worker`` is the command that builds."""

    def __init__(
        self,
        folder: Path,
        blobs: BlobStore,
        gpus: Callable[[], Sequence[GpuReading]],
        *,
        worker: Sequence[str] = _WORKER,
        version: Callable[[], str | None] = lambda: installed_version("tensorrt"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._blobs = blobs
        self._gpus = gpus
        self._worker = tuple(worker)
        self._version = version
        self._clock = clock
        self._builds: dict[str, _Build] = {}
        self._sequence = 0
        # a build measures the GPU, which another one would disturb
        self._turn = asyncio.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(folder / "work", ignore_errors=True)

    async def start(self, order: BuildOrder) -> BuildStatus:
        """Begin to build, or find the engine that was built before; a build that runs already is the same build.

        Raises:
            ContractError: the order makes no sense.
            InferenceError: UNSUPPORTED, this node cannot build; NOT_FOUND, it does not have the files.
        """
        check_order(order)
        version = self._version()
        if version is None:
            raise InferenceError(ErrorCode.UNSUPPORTED, _NO_TENSORRT)
        gpus = await asyncio.to_thread(self._gpus)
        if order.gpu >= len(gpus):
            raise InferenceError(
                ErrorCode.UNSUPPORTED, f"this node builds no engines on GPU {order.gpu}: it has {len(gpus)} GPUs"
            )
        missing = [file.sha256 for file in order.files if not self._blobs.has(file.sha256)]
        if missing:
            raise InferenceError(
                ErrorCode.NOT_FOUND, f"blob {missing[0]} is not on this node: deploy the version to it first"
            )
        name = gpus[order.gpu].name
        key = build_key(order, version, name)
        running = next((b for b in self._builds.values() if b.status.key == key and not b.status.state.is_final), None)
        if running is not None:
            return running.status
        self._sequence += 1
        identity = f"{key[:16]}-{self._sequence}"
        status = BuildStatus(identity, key, BuildState.WAITING, self._sequence, tensorrt_version=version, gpu_name=name)
        build = self._builds[identity] = _Build(order, status)
        self._forget_oldest()
        cached = await asyncio.to_thread(self._cached, key)
        if cached is not None:
            self._change(build, state=BuildState.READY, progress=1.0, engine=cached, was_cached=True)
        elif build.is_cancelled:
            self._change(build, state=BuildState.CANCELLED)
        else:
            build.task = asyncio.create_task(self._run(build))
        return build.status

    async def status(self, identity: str, after: int = -1, timeout_seconds: float = 0.0) -> BuildStatus:
        """Return how far a build is, as soon as its sequence is above ``after`` or after the time.

        Raises:
            InferenceError: NOT_FOUND.
        """
        build = self._find(identity)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while build.status.sequence <= after and not build.status.state.is_final:
                    await build.changed.wait()
        return build.status

    def list(self) -> list[BuildStatus]:
        """Return all builds, the oldest first."""
        return [build.status for build in self._builds.values()]

    async def cancel(self, identity: str) -> BuildStatus:
        """Stop a build; one that is over stays as it is. Returns when nothing runs for it any more.

        Raises:
            InferenceError: NOT_FOUND.
        """
        build = self._find(identity)
        build.is_cancelled = True
        if build.task is not None:
            build.task.cancel()
            await asyncio.wait([build.task])
        return build.status

    async def close(self) -> None:
        """Stop all builds."""
        await asyncio.gather(*(self.cancel(identity) for identity in self._builds))

    def _find(self, identity: str) -> _Build:
        build = self._builds.get(identity)
        if build is None:
            raise InferenceError(ErrorCode.NOT_FOUND, f"this node knows no build '{identity[:80]}'")
        return build

    def _change(self, build: _Build, **values: Any) -> None:
        self._sequence += 1
        build.status = replace(build.status, sequence=self._sequence, **values)
        changed, build.changed = build.changed, asyncio.Event()
        changed.set()

    def _forget_oldest(self) -> None:
        finished = [identity for identity, build in self._builds.items() if build.status.state.is_final]
        for identity in finished[: max(0, len(self._builds) - _REMEMBERED)]:
            del self._builds[identity]

    async def _run(self, build: _Build) -> None:
        """Build when it is this build's turn, and note how it ended, whatever happens."""
        began = self._clock()
        try:
            async with asyncio.timeout(build.order.deadline_seconds), self._turn:
                began = self._clock()
                self._change(build, state=BuildState.BUILDING)
                engine = await self._build(build)
            outcome: dict[str, Any] = {"state": BuildState.READY, "progress": 1.0, "phase": "", "engine": engine}
        except asyncio.CancelledError:
            outcome = {"state": BuildState.CANCELLED, "reason": "the build was cancelled"}
        except TimeoutError:
            seconds = build.order.deadline_seconds
            outcome = {"state": BuildState.FAILED, "reason": f"the engine was not built within {seconds:g} s"}
        except (InferenceError, BlobError) as error:
            outcome = {"state": BuildState.FAILED, "reason": error.message}
        except OSError as error:
            reason = f"the node cannot write the engine: {error.strerror or error}"
            outcome = {"state": BuildState.FAILED, "reason": reason}
        except Exception as error:
            log.exception("engine_build.failed", build=build.status.id)
            outcome = {"state": BuildState.FAILED, "reason": f"the build failed: {type(error).__name__}"}
        self._change(build, seconds=round(self._clock() - began, 3), **outcome)
        status = build.status
        log.info(
            "engine_build.ended", build=status.id, state=status.state, seconds=status.seconds, reason=status.reason
        )

    async def _build(self, build: _Build) -> FileRef:
        folder = self._folder / "work" / build.status.id
        try:
            job = await asyncio.to_thread(self._prepare, build, folder)
            await self._run_worker(build, job, folder)
            return await asyncio.to_thread(self._keep, build, Path(job.engine))
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))

    def _prepare(self, build: _Build, folder: Path) -> Job:
        """Lay the files out as the version has them."""
        shutil.rmtree(folder, ignore_errors=True)
        model = folder / "model"
        manifest_digest(build.order.files)  # refuses paths that lead elsewhere
        for file in build.order.files:
            place = model / file.path
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            place.hardlink_to(self._blobs.path(file.sha256))  # an eviction meanwhile changes nothing
        status, order = build.status, build.order
        kind = hashlib.sha256(f"{status.tensorrt_version} {status.gpu_name}".encode()).hexdigest()[:16]
        return Job(
            model=str(model / order.files[0].path),
            engine=str(folder / PLAN_FILE),
            timing_cache=str(self._folder / f"timing-{kind}.cache"),
            plan=order.plan,
            gpu=order.gpu,
        )

    async def _run_worker(self, build: _Build, job: Job, folder: Path) -> None:
        """Run the worker to its end; never leave it behind. Raises InferenceError with its sentence."""
        process = await asyncio.create_subprocess_exec(
            *self._worker,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=worker_environment(frozenset(), str(folder)),
            limit=_LONGEST_LINE,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        last: Mapping[str, Any] = {}
        try:
            process.stdin.write(json.dumps(job.to_json()).encode() + b"\n")
            await process.stdin.drain()
            async for line in process.stdout:
                last = json.loads(line)
                if "progress" in last:
                    self._change(build, progress=last["progress"], phase=last["phase"])
            await process.wait()
        except (ConnectionError, ValueError):
            last = {}
        finally:
            await asyncio.shield(_end(process))
        if "reason" in last:
            raise InferenceError(ErrorCode(last["code"]), last["reason"])
        if not last.get("done"):
            raise InferenceError(ErrorCode.INTERNAL, f"the process that built the engine {_ending(process)}")

    def _keep(self, build: _Build, engine: Path) -> FileRef:
        """Make the engine a blob, and remember it."""
        sha256, size = file_sha256(engine), engine.stat().st_size
        self._blobs.reserve(sha256, size)
        try:
            if not self._blobs.has(sha256):
                shutil.move(engine, self._blobs.partial_path(sha256))
                self._blobs.commit(sha256, size)
        finally:
            self._blobs.release(sha256)
        found = FileRef(PLAN_FILE, sha256, size)
        note = self._folder / f"{build.status.key}.json"
        part = note.with_suffix(".part")
        part.write_text(json.dumps(found.to_json()))
        part.rename(note)
        return found

    def _cached(self, key: str) -> FileRef | None:
        """Return the engine that was built before, if it is still here."""
        try:
            found = FileRef.from_json(json.loads((self._folder / f"{key}.json").read_text()))
        except (OSError, ValueError, ContractError):
            return None
        return found if self._blobs.verify(found.sha256) else None


def build_key(order: BuildOrder, version: str, gpu: str) -> str:
    """Return the digest of everything that an engine depends on. Raises ContractError, files that cannot be."""
    return plan_digest(
        {
            "files": manifest_digest(order.files),
            "model": order.files[0].path,
            "plan": order.plan.to_json(),
            "tensorrt": version,
            "gpu": gpu,
        }
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a worker to end, and end it when it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _ending(process: asyncio.subprocess.Process) -> str:
    status = process.returncode or 0
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
