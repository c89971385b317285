"""Puts a version before a scratch node in the sandbox and brings back what it said."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

import serving_node.contract
from registry.errors import StorageFailed
from registry.models import ModelVersion
from registry.storage import artifact_store
from serving_node.contract.model_config import ModelConfig, to_pbtxt
from serving_node.contract.proto.model_config_pb2 import ModelInstanceGroup
from workers.sandbox import Command, Ending, Limits, Mount, Outcome, run
from workers.scratch.environments import environments_for
from workers.scratch.report import Report, ScratchFailed, read_report

MODEL = "model"
_PROGRAM = Path(__file__).parent / "inside"
_CONFIG_FILE = "config.pbtxt"
# Of all the time that a trial has, the model may take this share to load.
_LOAD_SHARE = 0.6
# Python models keep their tensors there, beside what they write.
_SCRATCH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Request:
    """An inference request as it is sent: ``head`` is the length of the JSON before binary tensors, 0 for all of it.

    ``expected`` is what the answer is compared with, empty for nothing: a line of JSON, a list of ``{"name",
    "datatype", "shape", "size", "absolute", "relative"}``, and then the elements of each, as on the wire.
    """

    body: bytes
    head: int = 0
    expected: bytes = b""


@dataclass(frozen=True, slots=True)
class Round:
    """Requests that are sent in turn, again and again for so many seconds, to see how long they take."""

    requests: tuple[Request, ...]
    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Part:
    """Another model that the one under trial calls by ``name``."""

    name: str
    version: ModelVersion
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class Trial:
    """What to load and what to ask: each of ``requests`` once, each round of ``profile`` for its seconds.

    ``config`` None: the node finds everything out by itself. ``parts`` are loaded beside it.
    """

    config: ModelConfig | None = None
    requests: tuple[Request, ...] = ()
    profile: tuple[Round, ...] = ()
    parts: tuple[Part, ...] = ()


def run_trial(version: ModelVersion, trial: Trial, is_stopped: Callable[[], bool]) -> Report:
    """Load a version on a scratch node in the sandbox and ask it; blocks.

    Raises:
        ScratchFailed: the node did not get as far as answering, or was stopped.
        PackagesMissing: it needs packages that cannot be had here; nothing was run.
        SandboxUnavailable: nothing was run.
        StorageFailed: the store did not give the files.
    """
    with _folder(version, trial) as folder, environments_for(folder / "repository", is_stopped) as environments:
        outcome = run(_command(folder, environments), _limits(), is_stopped)
    if outcome.ending is not Ending.ITSELF or not outcome.answer:
        raise ScratchFailed(_ending(outcome), outcome.output)
    return read_report(outcome.answer, log=outcome.output, peak_bytes=outcome.peak_bytes)


def scratch_config(config: ModelConfig, name: str = MODEL) -> ModelConfig:
    """Return a config as a scratch node takes it: one instance, on the CPU, nothing kept between requests."""
    own = ModelConfig()
    own.CopyFrom(config)
    own.name = name
    own.ClearField("response_cache")
    own.ClearField("version_policy")
    if own.HasField("optimization"):
        own.optimization.ClearField("cuda")
        own.optimization.ClearField("execution_accelerators")
    kinds = {group.kind for group in own.instance_group}
    own.ClearField("instance_group")
    if own.HasField("ensemble_scheduling"):
        return own
    model = ModelInstanceGroup.Kind.KIND_MODEL
    own.instance_group.add(count=1, kind=model if kinds == {model} else ModelInstanceGroup.Kind.KIND_CPU)
    return own


def remove_left_behind(version: ModelVersion) -> None:
    """Remove what a trial of the version left that was killed."""
    shutil.rmtree(_place(version), ignore_errors=True)


def _place(version: ModelVersion) -> Path:
    return Path(settings.STAGING_DIR) / f"scratch-{version.pk}"


@contextmanager
def _folder(version: ModelVersion, trial: Trial) -> Iterator[Path]:
    """Give a folder with a model repository, the order and its requests, readable for the user of the sandbox."""
    place = _place(version)
    remove_left_behind(version)
    try:
        try:
            place.mkdir(parents=True)
            _write_order(place, trial)
        except OSError as error:
            raise StorageFailed(_("The files cannot be copied: %(why)s.") % {"why": error.strerror}) from error
        own = scratch_config(trial.config) if trial.config is not None else None
        _place_model(place / "repository" / MODEL, 1, version, own)
        for part in trial.parts:
            config = scratch_config(part.config, part.name)
            config.version_policy.all.SetInParent()
            _place_model(place / "repository" / part.name, part.version.number or 1, part.version, config)
        _let_read(place)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _place_model(folder: Path, number: int, version: ModelVersion, config: ModelConfig | None) -> None:
    """Write the folder of a model, or one version more of it."""
    try:
        directory = folder / str(number)
        directory.mkdir(parents=True)
        if config is not None:
            (folder / _CONFIG_FILE).write_text(to_pbtxt(config))
    except OSError as error:
        raise StorageFailed(_("The files cannot be copied: %(why)s.") % {"why": error.strerror}) from error
    for file in version.files.select_related("blob"):
        if file.path == _CONFIG_FILE:
            continue
        target = directory / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        artifact_store().copy_to(file.blob.sha256, target)


def _write_order(place: Path, trial: Trial) -> None:
    rounds = [
        {
            "requests": [_written(place, f"profile-{index}-{step}", one) for step, one in enumerate(cell.requests)],
            "batch": cell.batch,
            "seconds": cell.seconds,
        }
        for index, cell in enumerate(trial.profile)
    ]
    order = {
        "load_seconds": settings.SANDBOX_SECONDS * _LOAD_SHARE,
        "requests": [_written(place, f"request-{index}", one) for index, one in enumerate(trial.requests)],
        "profile": rounds,
    }
    (place / "order.json").write_text(json.dumps(order))


def _written(place: Path, name: str, request: Request) -> Mapping[str, object]:
    (place / name).write_bytes(request.body)
    found: dict[str, object] = {"file": f"/scratch/{name}", "head": request.head}
    if request.expected:
        (place / f"{name}.expected").write_bytes(request.expected)
        found["expected"] = f"/scratch/{name}.expected"
    return found


def _let_read(place: Path) -> None:
    """Let others read; the folder above is nobody's but the worker's."""
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _command(folder: Path, environments: tuple[Path, ...]) -> Command:
    package = Path(serving_node.contract.__file__).resolve().parent.parent
    mounts = (
        Mount(package, "/flotilla/serving_node"),
        # what the node verifies signatures with; it lies beside it
        Mount(package.with_name("signatures"), "/flotilla/signatures"),
        Mount(_PROGRAM.resolve(), "/flotilla/inside"),
        Mount(folder.resolve(), "/scratch"),
        Mount((folder / "repository").resolve(), "/repository"),
        *(Mount(environment.resolve(), f"/environments/{environment.name}") for environment in environments),
    )
    return Command(
        (sys.executable, "-s", "-m", "inside", "/scratch/order.json"),
        mounts=mounts,
        environment={"PYTHONPATH": "/flotilla", "OMP_NUM_THREADS": "2"},
        hidden=_hidden(),
    )


def _hidden() -> tuple[Path, ...]:
    """Return what must not be seen even where somebody keeps it beside the libraries."""
    return tuple(Path(path).absolute() for path in (settings.DATA_DIR, settings.STAGING_DIR))


def _limits() -> Limits:
    return Limits(
        seconds=float(settings.SANDBOX_SECONDS),
        memory_bytes=settings.SANDBOX_MEMORY_BYTES,
        scratch_bytes=_SCRATCH_BYTES,
        file_bytes=_SCRATCH_BYTES,
        cpu_seconds=4 * settings.SANDBOX_SECONDS,
        tasks=1024,
        open_files=4096,
    )


def _ending(outcome: Outcome) -> str:
    words = {"seconds": settings.SANDBOX_SECONDS, "size": settings.SANDBOX_MEMORY_BYTES >> 20}
    match outcome.ending:
        case Ending.DEADLINE:
            return _("It took longer than %(seconds)d seconds and was ended.") % words
        case Ending.MEMORY:
            return _("It took more than %(size)d MiB of memory and was ended.") % words
        case Ending.STOPPED:
            return _("It was stopped.")
        case _:
            lines = [line.strip() for line in outcome.output.splitlines() if line.strip()]
            last = lines[-1][:300] if lines else _("it printed nothing")
            return _("The scratch node ended without an answer; its last words: %(last)s") % {"last": last}
