"""Warm-up: running an instance on made-up requests before anybody waits for it.

Source: Triton's ``model_warmup`` (backend_model_instance.cc): a sample of batch size N is N requests in one execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import structlog

from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import BackendInstance, LoopInstance
from serving_node.core.errors import InferenceError, request_error
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
    name: str,
    zeros: bool,
    added: Sequence[Tensor] = (),
) -> None:
    """Run the config's warm-up samples, then with ``zeros`` one request of zeros. Blocks. ``name``: the instance's.

    ``added`` are the inputs that the node itself feeds, such as the controls of sequences; a sample may have others.

    Raises:
        InferenceError: a sample of the config does not fit the model or failed. The request of zeros may fail: not
            every model accepts zeros.
    """
    samples = [
        (sample, [_sample_request(sample, rules, model_directory, added) for _ in range(sample.batch_size)])
        for sample in config.model_warmup
        if sample.batch_size > 0
    ]
    for sample, requests in samples:
        for _ in range(max(1, sample.count)):
            failures = _failures(instance, requests, rules, name)
            if failures:
                reasons = "".join(f"{failure}; " for failure in failures)
                sentence = f"failed to run warmup sample '{sample.name}': {reasons}"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if zeros:
        try:
            failures = _failures(instance, [_zero_request(rules, added)], rules, name)
        except InferenceError as error:
            failures = [error.message]
        if failures:
            log.info("model.zeros_refused", model=rules.model, reason=failures[0])


def _failures(
    instance: BackendInstance | LoopInstance, requests: list[InferenceRequest], rules: IoRules, name: str
) -> list[str]:
    """Run a batch and return what went wrong, a sentence for each request that failed."""
    rows = sum(request.batch_size for request in requests)
    if rows > rules.max_batch_size > 0:
        return [f"batch size {rows} for '{name}', max allowed is {rules.max_batch_size}"] * len(requests)
    try:
        execution = execute(instance, Batch(requests, rows))
    except InferenceError as error:
        return [error.message] * len(requests)
    return [result.message for result in execution.results if isinstance(result, InferenceError)]


def _sample_request(
    sample: ModelWarmup, rules: IoRules, model_directory: Path, added: Sequence[Tensor]
) -> InferenceRequest:
    rows = (1,) if rules.max_batch_size > 0 else ()
    known = {rule.name for rule in rules.inputs}
    tensors: list[Tensor] = []
    feeds = {tensor.name: tensor for tensor in added}
    for name, source in sorted(sample.inputs.items()):
        dims = tuple(source.dims)
        if any(dim < 0 for dim in dims):
            sentence = f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        data = _sample_bytes(name, source, model_directory)
        tensor = Tensor(name, wire_name(source.data_type), rows + dims, data)
        if name in known:
            tensors.append(tensor)
        elif name in feeds:
            feeds[name] = tensor
    return _checked(rules, tensors, feeds.values())


def _sample_bytes(name: str, source: ModelWarmup.Input, model_directory: Path) -> bytes:
    datatype, elements = wire_name(source.data_type), prod(source.dims)
    kind = source.WhichOneof("input_data_type")
    if kind == "zero_data":
        return _zero_bytes(datatype, elements)
    if kind == "random_data":
        return _random_bytes(datatype, elements)
    if kind != "input_data_file":
        sentence = f"warmup setting expects input '{name}' to have input_data_type set"
        raise request_error(ErrorCode.INVALID_ARG, "", sentence)
    data = _file_bytes(model_directory, source.input_data_file)
    if datatype == "BYTES":
        return data
    size = NUMPY_DTYPES[datatype].itemsize * elements
    if size > len(data):
        sentence = (
            f"warmup setting expects {size} bytes, but the data provided from {source.input_data_file} only has"
            f" {len(data)} bytes"
        )
        raise request_error(ErrorCode.INVALID_ARG, "", sentence)
    return data[:size]


def _zero_request(rules: IoRules, added: Iterable[Tensor]) -> InferenceRequest:
    rows = (1,) if rules.max_batch_size > 0 else ()
    tensors: list[Tensor] = []
    for rule in rules.inputs:
        if not rule.is_optional:
            shape = rows + tuple(1 if dim == -1 else dim for dim in rule.dims)
            tensors.append(Tensor(rule.name, rule.datatype, shape, _zero_bytes(rule.datatype, prod(shape))))
    return _checked(rules, tensors, added)


def _checked(rules: IoRules, tensors: list[Tensor], added: Iterable[Tensor]) -> InferenceRequest:
    request = InferenceRequest(rules.model, "", tensors, _ignore)
    rules.check(request)
    request.inputs = [*request.inputs, *added]
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
        raise InferenceError(ErrorCode.INTERNAL, f"failed to open text file for read {path}: {reason}") from error


def _ignore(response: InferenceResponse) -> None:
    """Warm-up results go nowhere."""
