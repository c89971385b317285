"""Which modules are compiled, and where they lie."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from pathlib import Path

# What a request to a model passes on its way through the node, and classes that derive from those in it: a compiled
# class has no interpreted descendants. What travels between processes stays interpreted: compiled objects do not.
MODULES = (
    "backends.hosted.backend",
    "backends.python.exchange",
    "backends.python.instance",
    "backends.python.link",
    "backends.python.messages",
    "backends.python.worker.flotilla_wire",
    "core.execution",
    "core.request",
    "core.tensor",
    "core.varint",
    "frontends.grpc.codec",
    "frontends.grpc.connection",
    "frontends.grpc.infer",
    "frontends.grpc.routing",
    "frontends.http.infer",
    "frontends.http.response_codec",
    "frontends.parameters",
    "frontends.single_response",
    "observability.histogram",
    "observability.statistics",
    "repository.routes",
    "repository.serving_table",
    "scheduling.adaptive_scheduler",
    "scheduling.batch",
    "scheduling.batcher",
    "scheduling.deadlines",
    "scheduling.instances",
    "scheduling.io_rules",
    "scheduling.marks",
    "scheduling.queue",
    "scheduling.scheduler",
    "scheduling.sequence_rows",
    "scheduling.sequences",
    "scheduling.shape_rules",
    "wire.exchange",
    "wire.grpc",
    "wire.http1",
    "wire.http2.connection",
    "wire.http2.frames",
    "wire.http2.headers",
    "wire.http2.sender",
    "wire.listener",
)
# What a request passes in the process of a Python model; its modules have no package. They lie in a folder of their own
# in the set, for interpreters of the node's kind: others pass it over.
WORKER = Path("backends", "python", "worker")
WORKER_MODULES = ("flotilla_channel", "flotilla_model", "flotilla_wire")
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX")
PACKAGE = Path(__file__).resolve().parent.parent


def source_file(module: str) -> Path:
    """Return the source of one of ``MODULES``."""
    return PACKAGE.joinpath(*module.split(".")).with_suffix(".py")


def digest(package: Path = PACKAGE) -> str:
    """Return what the node's whole source and this kind of interpreter amount to.

    Not of the compiled modules alone: machine code has what other modules say of types and constants in it.
    """
    state = hashlib.sha256(SUFFIX.encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        state.update(f"\n{path.relative_to(package)} {len(source)}\n".encode())
        state.update(source)
    return state.hexdigest()[:32]


def folder(package: Path = PACKAGE) -> Path:
    """Return where the set for this source lies, or would."""
    return sets_folder() / digest(package)


def sets_folder() -> Path:
    """Return where the sets of this interpreter's environment are."""
    return Path(sys.prefix) / "share" / "flotilla" / "compiled"
