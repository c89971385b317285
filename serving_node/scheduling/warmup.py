"""Warm-up: running an instance on made-up requests before anybody waits for it.

Source: Triton's ``model_warmup`` (backend_model_instance.cc): a sample of batch size N is N requests in one execution.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import structlog

from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import BackendInstance, LoopInstance
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import NUMPY_DTYPES, Tensor, encode_bytes_elements
from serving_node.scheduling.batch import Batch
from serving_node.scheduling.instances import execute
from serving_node.scheduling.io_rules import IoRules

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelWarmup

log = structlog.get_logger(__name__)


def warm_up(
    instance: BackendInstance | LoopInstance,
    rules: IoRules,
    config: ModelConfig,
    model_directory: Path,
    *,
    zeros: bool = True,
) -> None:
    """Run the config's warm-up samples, then with ``zeros`` one request of zeros. Blocks.

    Raises:
        InferenceError: a sample of the config failed. The request of zeros may fail: not every model accepts zeros.
    """
    for sample in config.model_warmup:
        if sample.batch_size < 1:
            continue
        try:
            for _ in range(max(1, sample.count)):
                requests = [_sample_request(sample, rules, model_directory) for _ in range(sample.batch_size)]
                _run(instance, requests)
        except InferenceError as error:
            sentence = f"failed to run warmup sample '{sample.name}': {error.message}"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
    if not zeros:
        return
    try:
        _run(instance, [_zero_request(rules)])
    except InferenceError as error:
        log.info("model.zeros_refused", model=rules.model, reason=error.message)


def _run(instance: BackendInstance | LoopInstance, requests: list[InferenceRequest]) -> None:
    rows = sum(request.batch_size for request in requests)
    execution = execute(instance, Batch(requests, rows))
    for result in execution.results:
        if isinstance(result, InferenceError):
            raise result


def _sample_request(sample: ModelWarmup, rules: IoRules, model_directory: Path) -> InferenceRequest:
    rows = (1,) if rules.max_batch_size > 0 else ()
    tensors: list[Tensor] = []
    for name, source in sample.inputs.items():
        datatype, shape = wire_name(source.data_type), rows + tuple(source.dims)
        kind = source.WhichOneof("input_data_type")
        if kind == "random_data":
            data = _random_bytes(datatype, prod(shape))
        elif kind == "input_data_file":
            data = _file_bytes(model_directory, source.input_data_file)
        else:
            data = _zero_bytes(datatype, prod(shape))
        tensors.append(Tensor(name, datatype, shape, data))
    return _checked(rules, tensors)


def _zero_request(rules: IoRules) -> InferenceRequest:
    rows = (1,) if rules.max_batch_size > 0 else ()
    tensors: list[Tensor] = []
    for rule in rules.inputs:
        if not rule.is_optional:
            shape = rows + tuple(1 if dim == -1 else dim for dim in rule.dims)
            tensors.append(Tensor(rule.name, rule.datatype, shape, _zero_bytes(rule.datatype, prod(shape))))
    return _checked(rules, tensors)


def _checked(rules: IoRules, tensors: list[Tensor]) -> InferenceRequest:
    request = InferenceRequest(rules.model, "", tensors, _ignore)
    rules.check(request)
    return request


def _zero_bytes(datatype: str, elements: int) -> bytes:
    if datatype == "BYTES":
        return bytes(4 * elements)  # strings of length 0
    return bytes(NUMPY_DTYPES[datatype].itemsize * elements)


def _random_bytes(datatype: str, elements: int) -> bytes:
    generator = np.random.default_rng(elements)
    if datatype == "BYTES":
        words = np.array([f"{number:x}" for number in generator.integers(0, 2**32, elements)], dtype=np.object_)
        return encode_bytes_elements(words)
    dtype = NUMPY_DTYPES[datatype]
    if dtype.kind == "f":
        return generator.random(elements).astype(dtype).tobytes()
    if dtype.kind == "b":
        return generator.integers(0, 2, elements).astype(dtype).tobytes()
    return generator.integers(0, 127, elements).astype(dtype).tobytes()  # fits every integer type


def _file_bytes(model_directory: Path, filename: str) -> bytes:
    folder = (model_directory / "warmup").resolve()
    path = (folder / filename).resolve()
    if not path.is_relative_to(folder):
        raise InferenceError(ErrorCode.INVALID_ARG, f"warmup file '{filename}' lies outside the folder 'warmup'")
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InferenceError(ErrorCode.INVALID_ARG, f"cannot read warmup file '{filename}': {reason}") from error


def _ignore(response: InferenceResponse) -> None:
    """Warm-up results go nowhere."""
