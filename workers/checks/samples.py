"""What a scratch node is asked: samples that somebody gave, else made-up tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.measurements import MAX_REQUEST_BYTES, input_shapes, request_bytes
from registry.domain.sample_inputs import Sample
from serving_node.contract.model_config import ModelConfig
from serving_node.contract.signature import ModelSignature
from workers.checks.unopened import signature_in
from workers.node_client.made_requests import made_request
from workers.scratch import Request, Round

_BINARY: Mapping[str, Any] = {"binary_data_output": True}
# How a sequence is tried: its first request, one within, its last.
_STEPS: tuple[Mapping[str, Any], ...] = ({"sequence_start": True}, {}, {"sequence_end": True})
_PROFILE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, what it is called, and how many rows it has, None where only the sender knows."""

    name: str
    request: Request
    rows: int | None


def asked_of(sample: Sample) -> Asked:
    """Return a sample as it is sent, with what is expected of it."""
    inputs = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": list(one.shape),
            "parameters": {"binary_data_size": len(one.data)},
        }
        for one in sample.inputs
    ]
    parameters = {**sample.head.get("parameters", {}), **_BINARY}
    head = json.dumps({**sample.head, "inputs": inputs, "parameters": parameters}).encode()
    body = b"".join([head, *(one.data for one in sample.inputs)])
    return Asked(sample.name, Request(body, len(head), _expected(sample)), None)


def _expected(sample: Sample) -> bytes:
    if not sample.expected:
        return b""
    outputs = [
        {
            "name": one.tensor.name,
            "datatype": one.tensor.datatype,
            "shape": list(one.tensor.shape),
            "size": len(one.tensor.data),
            "absolute": one.absolute,
            "relative": one.relative,
        }
        for one in sample.expected
    ]
    return b"".join([json.dumps(outputs).encode(), b"\n", *(one.tensor.data for one in sample.expected)])


def made_up_requests(config: ModelConfig) -> list[Asked]:
    """Return a request of one row, and one of two where the config batches: eighths, 0 and 1, short texts.

    Of a model of sequences it is one sequence: begin, middle and end. Sizes that are dynamic are those of the config's
    first warm-up, else 1.
    """
    signature = signature_in(config)
    if not _is_sendable(signature, config, 1):
        return []
    if _is_sequence(config):
        names = (_("sequence, start"), _("sequence, middle"), _("sequence, end"))
        steps = zip(names, _sequence(signature, config, 1), strict=True)
        return [Asked(name, request, _rows(config, 1)) for name, request in steps]
    batches = (1, 2) if config.max_batch_size > 1 else (1,)
    return [
        Asked(_("batch of %(rows)d") % {"rows": batch}, _made(signature, config, batch, {}), _rows(config, batch))
        for batch in batches
        if _is_sendable(signature, config, batch)
    ]


def profile_rounds(config: ModelConfig) -> list[Round]:
    """Return what is profiled: batch size 1, and the config's largest where one such request may be sent.

    Of a model of sequences it is one short sequence after the other, which never batch by themselves.
    """
    signature = signature_in(config)
    if _is_sequence(config):
        requests = _sequence(signature, config, 2) if _is_sendable(signature, config, 1) else []
        return [Round(tuple(requests), 1, _PROFILE_SECONDS)] if requests else []
    batches = [size for size in sorted({1, max(config.max_batch_size, 1)}) if _is_sendable(signature, config, size)]
    return [Round((_made(signature, config, batch, {}),), batch, _PROFILE_SECONDS) for batch in batches]


def _is_sequence(config: ModelConfig) -> bool:
    # of an iterative one each request is a sequence that the node itself sends round
    return config.HasField("sequence_batching") and not config.sequence_batching.iterative_sequence


def _sequence(signature: ModelSignature, config: ModelConfig, identity: int) -> list[Request]:
    return [_made(signature, config, 1, {"sequence_id": identity, **step}) for step in _STEPS]


def _rows(config: ModelConfig, batch: int) -> int | None:
    return batch if config.max_batch_size else None


def _is_sendable(signature: ModelSignature, config: ModelConfig, batch: int) -> bool:
    return request_bytes(signature, config, batch, _warm_shapes(config)) <= MAX_REQUEST_BYTES


def _made(signature: ModelSignature, config: ModelConfig, batch: int, parameters: Mapping[str, Any]) -> Request:
    shapes = input_shapes(signature, config, batch, _warm_shapes(config))
    made = made_request(signature, shapes, {**_BINARY, **parameters})
    return Request(made.body, made.head_bytes)


def _warm_shapes(config: ModelConfig) -> dict[str, Sequence[int]]:
    """Return the sizes that the first warm-up request has, by input: what the model's owner knows to work."""
    if not config.model_warmup:
        return {}
    return {name: tuple(one.dims) for name, one in config.model_warmup[0].inputs.items() if one.dims}
