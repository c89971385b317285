"""What the Python backend is told: backend options, parameters of a model, and which variables workers may see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

# Workers get these variables of the node and no others: secrets live in the environment too.
_PASSED = frozenset(
    [
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "HOME",
        "USER",
        "LOGNAME",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_CACHE",
        "TRANSFORMERS_OFFLINE",
        "TORCH_HOME",
        "XDG_CACHE_HOME",
        "NUMBA_CACHE_DIR",
        "MALLOC_ARENA_MAX",
        "TOKENIZERS_PARALLELISM",
    ]
)
_PASSED_PREFIXES = ("LC_", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_")


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """Options of ``--backend-config=python,<key>=<value>``."""

    start_seconds: float = 30.0
    initialize_seconds: float = 3600.0
    pass_environment: frozenset[str] = frozenset()
    busy_poll_ns: int = 300_000
    package_index: str = ""
    environments: Path = Path()
    environment_seconds: float = 600.0


def python_options(options: Mapping[str, str]) -> PythonOptions:
    """Return the options of the backend; those that mean nothing here are accepted.

    Raises:
        InferenceError: INVALID_ARG when a value is not a number.
    """
    start = _number(options, "stub-timeout-seconds", 30)
    initialize = _number(options, "initialize-timeout-seconds", 3600)
    for name in ("shm-default-byte-size", "shm-growth-byte-size", "thread-pool-size"):
        _number(options, name, 0)
    names = frozenset(name.strip() for name in options.get("pass-environment", "").split(",") if name.strip())
    busy_poll = _number(options, "busy-poll-microseconds", 300)
    return PythonOptions(
        start_seconds=float(start),
        initialize_seconds=float(initialize),
        pass_environment=names,
        busy_poll_ns=max(0, busy_poll) * 1000,
        package_index=options.get("package-index", "").strip(),
        environments=Path(options.get("environment-folder", "") or _cache_folder()),
        environment_seconds=float(_number(options, "environment-timeout-seconds", 600)),
    )


def _cache_folder() -> Path:
    """Return where environments are kept when nobody says it."""
    caches = os.environ.get("XDG_CACHE_HOME", "")  # noqa: TID251  this is a settings module
    return (Path(caches) if caches else Path.home() / ".cache") / "flotilla" / "environments"


def worker_environment(passed: frozenset[str], temporary: str) -> dict[str, str]:
    """Return the environment of a worker: what is allowed, ``passed`` by name, and a temporary folder of its own."""
    environment = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251  this is a settings module
        if name in _PASSED or name in passed or name.startswith(_PASSED_PREFIXES)
    }
    environment["TMPDIR"] = temporary
    environment["PYTHONUNBUFFERED"] = "1"
    # Bytecode written beside a model would make its folder look modified, and the next load reload it.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise InferenceError(ErrorCode.INVALID_ARG, f"option '{name}' must be a number, got '{text}'") from None
