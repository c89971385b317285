"""What a scratch node is asked: samples that came with the version, else made-up tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.measurements import MAX_REQUEST_BYTES, input_shapes, request_bytes
from registry.models import ModelVersion
from registry.storage import artifact_store
from serving_node.contract.model_config import ModelConfig
from serving_node.contract.signature import ModelSignature
from workers.checks.unopened import signature_in
from workers.checks.verdicts import CheckFailed
from workers.node_client.made_requests import made_request
from workers.scratch import Request

SAMPLES_FILE = "sample_inputs.json"
MAX_SAMPLE_BYTES = 1 << 20
MAX_SAMPLES = 16
_BINARY: Mapping[str, Any] = {"binary_data_output": True}
_SEQUENCE: Mapping[str, Any] = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
_PROFILE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and how many rows it has, None where only the sender knows."""

    request: Request
    rows: int | None


def sample_requests(version: ModelVersion) -> list[Asked]:
    """Return the requests in the version's ``sample_inputs.json``: one v2 inference request, or a list of them.

    Raises:
        CheckFailed: the file holds something else.
        StorageFailed: it cannot be read.
    """
    file = version.files.select_related("blob").filter(path=SAMPLES_FILE).first()
    if file is None:
        return []
    if file.blob.size > MAX_SAMPLE_BYTES:
        raise CheckFailed(_("%(name)s is larger than 1 MiB.") % {"name": SAMPLES_FILE})
    try:
        document = json.loads(b"".join(artifact_store().open_range(file.blob.sha256)))
    except (ValueError, RecursionError) as error:
        raise CheckFailed(_("%(name)s is no JSON: %(why)s") % {"name": SAMPLES_FILE, "why": error}) from error
    samples = document if isinstance(document, list) else [document]
    if not 1 <= len(samples) <= MAX_SAMPLES or not all(_is_request(sample) for sample in samples):
        text = _("%(name)s must hold 1 to %(most)d requests with a list “inputs” each.")
        raise CheckFailed(text % {"name": SAMPLES_FILE, "most": MAX_SAMPLES})
    return [
        Asked(Request(json.dumps({**sample, "parameters": _parameters(sample)}).encode()), None) for sample in samples
    ]


def _is_request(sample: Any) -> bool:
    return isinstance(sample, dict) and isinstance(sample.get("inputs"), list) and bool(sample["inputs"])


def _parameters(sample: Mapping[str, Any]) -> dict[str, Any]:
    given = sample.get("parameters")
    return {**_BINARY, **(given if isinstance(given, dict) else {})}


def made_up_requests(config: ModelConfig) -> list[Asked]:
    """Return a request of one row, and one of two where the config batches: eighths, 0 and 1, short texts.

    Sizes that are dynamic are those of the config's first warm-up, else 1.
    """
    signature = signature_in(config)
    batches = (1, 2) if config.max_batch_size > 1 else (1,)
    return [_made(signature, config, batch) for batch in batches if _is_sendable(signature, config, batch)]


def profile_requests(config: ModelConfig) -> list[Request]:
    """Return what is profiled: batch size 1, and the config's largest where one such request may be sent."""
    signature = signature_in(config)
    batches = [size for size in sorted({1, max(config.max_batch_size, 1)}) if _is_sendable(signature, config, size)]
    made = [(batch, _made(signature, config, batch).request) for batch in batches]
    return [Request(one.body, one.head, batch, _PROFILE_SECONDS) for batch, one in made]


def _is_sendable(signature: ModelSignature, config: ModelConfig, batch: int) -> bool:
    return request_bytes(signature, config, batch, _warm_shapes(config)) <= MAX_REQUEST_BYTES


def _made(signature: ModelSignature, config: ModelConfig, batch: int) -> Asked:
    shapes = input_shapes(signature, config, batch, _warm_shapes(config))
    parameters = {**_BINARY, **(_SEQUENCE if config.HasField("sequence_batching") else {})}
    made = made_request(signature, shapes, parameters)
    return Asked(Request(made.body, made.head_bytes), batch if config.max_batch_size else None)


def _warm_shapes(config: ModelConfig) -> dict[str, Sequence[int]]:
    """Return the sizes that the first warm-up request has, by input: what the model's owner knows to work."""
    if not config.model_warmup:
        return {}
    return {name: tuple(one.dims) for name, one in config.model_warmup[0].inputs.items() if one.dims}
