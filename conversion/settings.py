"""What a conversion's process may see of the environment: what libraries need to be found, nothing that is secret."""

from __future__ import annotations

import os

_PASSED = frozenset(["PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"])
_PASSED_PREFIXES = ("LC_", "OMP_", "MKL_", "OPENBLAS_", "KMP_")


def scrubbed_environment(temporary: str) -> dict[str, str]:
    """Return the environment of a conversion; ``temporary`` is its home and its folder for temporary files."""
    environment = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251  this is a settings module
        if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }
    environment["HOME"] = environment["TMPDIR"] = temporary
    environment["PYTHONDONTWRITEBYTECODE"] = environment["ORT_DISABLE_TELEMETRY"] = "1"
    return environment
