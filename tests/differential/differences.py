"""Which cases differ on purpose: a row of docs/reference/differences.md ("Where") and the ids of its cases."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from tests.differential.steps import Case

DIFFERENCES: dict[str, tuple[str, ...]] = {
    "a model of which all instance groups are `passive`": ("limited-passive",),
    "response cache: when two requests are equal": (
        "kept-other-shape",
        "kept-other-parameters",
        "kept-other-outputs",
    ),
    "response cache: an answer that is an error": ("kept-an-error",),
    "response cache: a model that is loaded again, changed": ("kept-reloaded",),
    "response cache: requests of sequences": ("kept-a-sequence",),
    "response cache: outputs without elements": ("kept-no-elements",),
    "`HEAD` where `GET` is served": ("http-route-HEAD-/v2", "http-route-HEAD-/v2/health/ready"),
    "`%` escapes in model names": ("http-route-GET-/v2/models/pl%61in", "http-route-GET-/v2/models/a%2Fb"),
    "malformed HTTP: bad lines, unknown methods, chunk sizes, two lengths, heads over 64 KiB": (
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
    "pipelined requests, chunk extensions, HTTP/1.0": ("http-http-1.0*", "http-chunked-extension", "http-pipelined"),
    "content codings": (
        "http-encoding-upper",
        "http-encoding-empty",
        "http-accept-GZIP",
    ),
    "answers under 256 bytes to clients that accept gzip": ("http-accept-gzip-small",),
    "compressed bodies that are damaged or cut short": (
        "http-encoding-deflate-bare",
        "http-encoding-gzip-of-plain",
        "http-encoding-gzip-cut",
    ),
    "a key that is twice in a JSON object": ("http-json-inputs-twice",),
    "bytes in JSON that are not UTF-8": ("http-json-not-utf8",),
    "JSON nested in 100 arrays or more, shapes with more than 2^63 - 1 elements": (
        "http-json-data-nested-deep",
        "bad-overflow-product-json",
        "bad-overflow-product-binary",
        "bad-overflow-product-raw",
        "bad-overflow-by*",
        "bad-overflow-be*",
        "bad-overflow-l*",
    ),
    "`Inference-Header-Content-Length` without a number, or past 32 bits": (
        "http-binary-header-abc",
        "http-binary-header-",
        "http-binary-header-99999999999999999999",
    ),
    "a raw request of the wrong size": ("http-raw-matrix-odd", "http-raw-odd-bytes", "http-raw-fixed-long"),
    "a required input missing beside optional ones": ("bad-missing-both-optional-required-*",),
    "several mistakes in one request": ("bad-batch-size-differs-*", "bad-shape-zero-batch-*", "bls-wrong-*"),
    "inputs listed in an error": (
        "bad-optional-too-many-*",
        "bad-unknown-input-json",
        "bad-unknown-input-binary",
        "bad-unknown-input-raw",
        "bad-unknown-input-typed",
        "bad-id-unknown-input-*",
        "stats-bad-requests",
        "sequence_*-control-as-input",
    ),
    "ids of sequences that are texts, as a control input": (
        "rows_text-id",
        "rows_text-id-grpc",
        "rows_text-id-number",
        "rows_direct-id-text",
    ),
    "`sequence_batching.state` of Python models": ("keeps*-sum*",),
    "classification of texts": ("classes-TEXTS-*",),
    "response parameters of Python models": (
        "response-parameters-*",
        "stream-parameters",
        "generate-parameters-out",
        "generate_stream-parameters-out",
    ),
    "what goes wrong in another model that a Python model asks: its kind": (
        "calls-failing-NOT_FOUND",
        "calls-failing-CANCELLED",
        "calls-three",
        "calls-async-three",
        "calls-decoupled-three",
        "calls-decoupled-async-three",
        "calls-queue-timeout",
        "calls-queue-timeout-shorter",
    ),
    "texts of pybind in errors of Python models": (
        "calls-parameters-list",
        "failing-list-*",
        "failing-raise nothing-*",
        "passes_oldest-answer-and-again",
    ),
    "order of the inputs that a Python model sees": ("optional-all-*", "http-seen-inputs"),
    "an unknown datatype beside binary data": (
        "bad-datatype-unknown-binary",
        "bad-datatype-empty-binary",
        "bad-datatype-config-name-binary",
        "bad-datatype-string-binary",
    ),
    "a Python model that answers `None` without a sender": ("failing-none-*",),
    "two responses to a request that has one": ("sender-twice-json", "sender-twice-stream"),
    "two tensors of one name from a Python model": ("failing-twice-raw",),
    "a Python process that dies": ("dying-*",),
    "`generate` when the model gives none or several responses": (
        "generate-three",
        "generate-zero",
        "generate-error-later",
    ),
    "`generate`, status of a model's error": (
        "generate-error",
        "generate-error-unavailable",
        "generate-failing",
        "generate_stream-error",
        "generate_stream-error-unavailable",
        "generate_stream-failing",
        "pipe-many-generate_stream-error",
    ),
    "`generate`: headers of `--http-header-forward-pattern`": ("guarded-forward-generate",),
    "gRPC stream: bytes that are no message": ("stream-broken-message",),
    "load: a name that is empty, `..` or has a slash": (
        "life-load-empty-name",
        "life-load-space-name",
        "life-load-name-[!d]*",
        "life-load-name-dots",
    ),
    "repository index, `ready` not a boolean": ("life-index-body-ready-*",),
    "load, an unknown parameter over HTTP": ("life-load-body-unknown",),
    "index, load: a JSON body that is not an object; unload: a wrong body": (
        "life-index-body-array",
        "life-load-body-array",
        "life-unload-body-not-json",
        "life-unload-body-dependents-text",
    ),
    "load with files, content that is no base64": ("life-files-not-base64",),
    "log and trace settings, an unknown name or trace level, `trace_mode`": (
        "trace-level-unknown",
        "trace-level-lower",
        "trace-level-old",
        "trace-mode",
        "trace-unknown",
        "trace-grpc-mode",
        "trace-grpc-unknown",
        "logging-unknown",
        "logging-grpc-unknown",
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
    "a Python model answers a request with an error": ("stats-failing",),
    "a Python process that ends in `initialize`; a version without `model.py`, or with one outside its folder": (
        "refused-no_model",
        "refused-absent_filename",
        "refused-escaping_filename",
    ),
    "configs with a tensor twice": (
        "refused-duplicate_*",
        "refused-control_is_input",
    ),
    "failure counters of an unloaded model": ("metrics-unloaded",),
    "metrics that a model made, once it is unloaded or its process has died": ("contract-metrics-go",),
    "an ensemble: a part of its outputs, when a step takes one of them": (
        "ensemble-skips-steps-*",
        "ensemble-id-*",
        "pipe-sides-[LRB]*",
        "pipe-outer-json",
        "pipe-outer-binary",
        "pipe-outer-raw",
        "pipe-outer-typed",
        "pipe-stats-right",
    ),
    "an ensemble that fails: failures counted": (
        "pipe-stats-failing",
        "pipe-queue-full-stats",
    ),
    "an ensemble with several outputs: `sequence_id`, `sequence_start` and `sequence_end` of its answers": (
        "ensemble-binary",
        "pipe-sides-binary",
    ),
    "config of an ensemble": ("config-ensemble-http", "pipe-shown-*-config", "pipe-life-load"),
    "an ensemble that lacks several models": ("pipe-life-parts-missing",),
}


def with_differences(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the cases, each with the row that says why its answers differ, if one does."""
    return tuple(replace(case, difference=_row(case.id)) for case in cases)


def _row(id: str) -> str:
    rows = [row for row, patterns in DIFFERENCES.items() if any(fnmatchcase(id, pattern) for pattern in patterns)]
    assert len(rows) <= 1, f"{id} is in {rows}"
    return rows[0] if rows else ""
