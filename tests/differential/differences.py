"""Which cases differ on purpose: a row of docs/reference/differences.md ("Where") and the ids of its cases."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from tests.differential.steps import Case

DIFFERENCES: dict[str, tuple[str, ...]] = {
    "`HEAD` where `GET` is served": ("http-route-HEAD-/v2", "http-route-HEAD-/v2/health/ready"),
    "percent-encoded paths": ("http-route-GET-/v2/models/pl%61in", "http-route-GET-/v2/models/a%2Fb"),
    "requests that are not HTTP": (
        "http-route-GET-/v2/models/no such/ready",
        "http-chunked-bad-size",
        "http-bad-line",
        "http-bad-version",
        "http-bad-header",
        "http-bad-length",
        "http-two-lengths",
        "http-lower-case-verb",
        "http-unknown-verb",
    ),
    "HTTP/1.0, pipelining, chunk extensions": ("http-http-1.0*", "http-chunked-extension", "http-pipelined"),
    "content codings": (
        "http-encoding-upper",
        "http-encoding-empty",
        "http-accept-GZIP",
        "http-accept-gzip-small",
        "http-encoding-deflate-bare",
        "http-encoding-gzip-of-plain",
        "http-encoding-gzip-cut",
    ),
    "JSON: a member twice; bytes that are not UTF-8": ("http-json-inputs-twice", "http-json-not-utf8"),
    "JSON nested deeper than 100": ("http-json-data-nested-deep",),
    "`Inference-Header-Content-Length`, not a number": (
        "http-binary-header-abc",
        "http-binary-header-",
        "http-binary-header-99999999999999999999",
    ),
    "raw requests: name of the input in errors": ("http-raw-matrix-odd", "http-raw-odd-bytes", "http-raw-fixed-long"),
    "a batch of 0 rows": ("zero-rows-*", "bad-shape-zero-batch-*"),
    "a required input missing beside optional ones": ("bad-missing-both-optional-required-*",),
    "several mistakes in one request": ("bad-batch-size-differs-*",),
    "inputs listed in an error": (
        "bad-optional-too-many-*",
        "bad-unknown-input-json",
        "bad-unknown-input-binary",
        "bad-unknown-input-raw",
        "bad-unknown-input-typed",
        "bad-id-unknown-input-*",
        "stats-bad-requests",
    ),
    "sizes past 64 bits": ("bad-overflow-*",),
    "classification of texts": ("classes-TEXTS-*",),
    "response parameters of Python models": (
        "response-parameters-*",
        "stream-parameters",
        "generate-parameters-out",
        "generate_stream-parameters-out",
    ),
    "texts of pybind in errors of Python models": ("failing-list-*",),
    "a Python model that answers `None` without a sender": ("failing-none-*",),
    "two responses to a request that has one": ("sender-twice-*",),
    "two tensors of one name from a Python model": ("failing-twice-raw",),
    "a Python model whose process ended": ("dying-*",),
    "`generate`, `generate_stream`: status of a failure": (
        "generate-three",
        "generate-zero",
        "generate-error*",
        "generate-failing",
        "generate_stream-error",
        "generate_stream-error-unavailable",
        "generate_stream-failing",
    ),
    "gRPC stream: bytes that are no message": ("stream-broken-message",),
    "model names with `/`, `..` or only blanks": ("life-load-empty-name", "life-load-space-name", "life-load-name-*"),
    "repository index, `ready` not a boolean": ("life-index-body-ready-*",),
    "load, an unknown parameter over HTTP": ("life-load-body-unknown",),
    "load, unload and index: bodies of another shape": (
        "life-index-body-array",
        "life-load-body-array",
        "life-load-body-parameters-array",
        "life-load-body-config-number",
        "life-load-body-config-object",
        "life-load-body-file-number",
        "life-unload-body-not-json",
        "life-unload-body-dependents-text",
    ),
    "load: files that are not base64": ("life-files-not-base64",),
    "log and trace settings, an unknown name or trace level, `trace_mode`": (
        "trace-level-unknown",
        "trace-level-lower",
        "trace-level-old",
        "trace-mode",
        "trace-unknown",
        "trace-grpc-mode",
        "trace-grpc-unknown",
        "logging-unknown",
    ),
    "trace or log settings over HTTP, an empty body; an array": (
        "trace-body-empty",
        "trace-body-array",
        "logging-empty",
        "logging-array",
    ),
    "`log_format` set to an unknown word over HTTP; `log_verbose_level` over 2^31": (
        "logging-format-unknown",
        "logging-format-lower",
        "logging-good-and-bad",
    ),
    "`trace_rate`, `log_frequency`: `-1`, `12abc`, `3000000000`": (
        "trace-rate-negative",
        "trace-rate-fraction",
        "trace-frequency-negative",
    ),
    "shared memory: keys of the Python backend, empty keys": (
        "shm-register-empty-key",
        "shm-register-slashes",
        "shm-register-reserved*",
    ),
    "shared memory: size and offset past 64 bits": ("shm-register-bounds-overflow", "shm-register-bounds-wrap"),
    "shared memory: one object under two names; 0 bytes in a region": (
        "shm-register-two",
        "shm-in-zero-*",
        "shm-in-no-size-http",
    ),
    "shared memory: a region without a name over gRPC": ("shm-register-empty-name-grpc",),
    "statistics of warm-up": ("stats-warmed-up",),
    "statistics of requests that a Python model answers with an error": ("stats-failing",),
    "a Python model without its file, or with one outside its folder": (
        "refused-no_model",
        "refused-absent_filename",
        "refused-escaping_filename",
    ),
    "configs with a tensor twice, or a control that is an input": (
        "refused-duplicate_*",
        "refused-control_is_input",
    ),
    "warm-up errors": ("refused-warmup_*",),
    "failure counters of an unloaded model": ("metrics-unloaded",),
}


def with_differences(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the cases, each with the row that says why its answers differ, if one does."""
    return tuple(replace(case, difference=_row(case.id)) for case in cases)


def _row(id: str) -> str:
    rows = [row for row, patterns in DIFFERENCES.items() if any(fnmatchcase(id, pattern) for pattern in patterns)]
    assert len(rows) <= 1, f"{id} is in {rows}"
    return rows[0] if rows else ""
