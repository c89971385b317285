"""Padding of inputs whose length varies, so that requests of different lengths share a batch: what a config asks for.

One rule for each padded input, in ``parameters``. The model inputs that receive a mask or lengths are made by the node
and are no inputs of the config.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from serving_node.contract.errors import ContractError
from serving_node.contract.parameters import parameter
from serving_node.contract.proto import model_config_pb2 as pb
from serving_node.contract.proto.model_config_pb2 import DataType, ModelConfig, ModelInput

_AXIS = "flotilla.padding"
_VALUE = "flotilla.padding_value"
_MULTIPLE = "flotilla.padding_multiple"
_MASK = "flotilla.padding_mask"
_LENGTHS = "flotilla.padding_lengths"
_OUTPUTS = "flotilla.padding_outputs"
_DETAILS = (_VALUE, _MULTIPLE, _MASK, _LENGTHS, _OUTPUTS)

# Least and greatest value of the types that a padding value can overflow.
_LIMITS = {
    pb.TYPE_BOOL: (0, 1),
    **{getattr(pb, f"TYPE_UINT{bits}"): (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{getattr(pb, f"TYPE_INT{bits}"): (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
}
_FLOATS = (pb.TYPE_FP16, pb.TYPE_FP32, pb.TYPE_FP64)
_MADE_TYPES = ("BOOL", "INT32", "INT64", "FP16", "FP32")


@dataclass(frozen=True, slots=True)
class MadeInput:
    """A model input that the node makes: its name and its type on the wire (``INT64``)."""

    name: str
    datatype: str


@dataclass(frozen=True, slots=True)
class PaddingRule:
    """How one input is brought to a common length.

    ``axis`` counts the dimensions of the config, without rows. The length becomes that of the longest request of the
    batch, rounded up to ``multiple``. Shapes: ``mask`` is (rows, length), 1 where there is content; ``lengths`` is
    (rows, 1). ``outputs``: names of outputs, and the axis along which each is cut back to the request's length.
    """

    input: str
    axis: int
    value: float = 0.0
    multiple: int = 1
    mask: MadeInput | None = None
    lengths: MadeInput | None = None
    outputs: tuple[tuple[str, int], ...] = ()


def padding_rules(config: ModelConfig) -> tuple[PaddingRule, ...]:
    """Return the rules of a valid config, in the order of its inputs.

    Raises:
        ContractError: a key cannot be read.
    """
    if not any(key.startswith(_AXIS) for key in config.parameters):
        return ()
    return tuple(_rule(config, tensor) for tensor in config.input if f"{_AXIS}.{tensor.name}" in config.parameters)


def padding_inputs(config: ModelConfig) -> list[str]:
    """Return the names of the model inputs that the node makes, also while the config has no inputs yet."""
    keys = [key for key in config.parameters if key.startswith((f"{_MASK}.", f"{_LENGTHS}."))]
    return [config.parameters[key].string_value.partition(":")[0].strip() for key in keys]


def padding_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield what is wrong with padding, after each key alone was found to be right."""
    if not any(key.startswith(_AXIS) for key in config.parameters):
        return
    tensors = {tensor.name: tensor for tensor in config.input}
    for key in sorted(config.parameters):
        detail = next((known for known in _DETAILS if key.startswith(f"{known}.")), None)
        if detail is not None and f"{_AXIS}.{key.removeprefix(f'{detail}.')}" not in config.parameters:
            missing = f"{_AXIS}.{key.removeprefix(f'{detail}.')}"
            yield _problem(key, f"means nothing without '{missing}'")
    made: set[str] = set()
    try:
        rules = padding_rules(config)
    except ContractError as error:
        yield error
        return
    for rule in rules:
        yield from _input_problems(config, rule, tensors[rule.input])
        for key, extra in ((_MASK, rule.mask), (_LENGTHS, rule.lengths)):
            if extra is None:
                continue
            if extra.name in tensors or extra.name in made:
                yield _problem(f"{key}.{rule.input}", f"names '{extra.name}', which is an input already")
            made.add(extra.name)
        yield from _output_problems(config, rule)


def _rule(config: ModelConfig, tensor: ModelInput) -> PaddingRule:
    name = tensor.name
    axis, value, multiple = (parameter(config, f"{key}.{name}") for key in (_AXIS, _VALUE, _MULTIPLE))
    return PaddingRule(
        input=name,
        axis=int(axis or 0),
        value=float(value or 0),
        multiple=int(multiple or 1),
        mask=_made(config, f"{_MASK}.{name}"),
        lengths=_made(config, f"{_LENGTHS}.{name}"),
        outputs=tuple(_outputs(config, f"{_OUTPUTS}.{name}", int(axis or 0))),
    )


def _made(config: ModelConfig, key: str) -> MadeInput | None:
    text = _text(config, key)
    name, _, datatype = (part.strip() for part in text.partition(":"))
    if not name:
        return None
    kind = datatype.removeprefix("TYPE_") or "INT64"
    if kind not in _MADE_TYPES:
        raise _problem(key, f"must be a name, or NAME:TYPE with one of {', '.join(_MADE_TYPES)}, got '{text}'")
    return MadeInput(name, kind)


def _outputs(config: ModelConfig, key: str, default: int) -> Iterator[tuple[str, int]]:
    text = _text(config, key)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, axis = part.rpartition(":")
        if not colon:
            yield part, default
        elif axis.strip().isascii() and axis.strip().isdecimal():
            yield name.strip(), int(axis)
        else:
            raise _problem(key, f"must be names of outputs, each alone or as NAME:AXIS, got '{text}'")


def _text(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value if key in config.parameters else ""


def _input_problems(config: ModelConfig, rule: PaddingRule, tensor: ModelInput) -> Iterator[ContractError]:
    key = f"{_AXIS}.{rule.input}"
    if config.max_batch_size < 1:
        yield _problem(key, "needs a 'max_batch_size' of at least 1")
    if not rule.axis < len(tensor.dims) or tensor.dims[rule.axis] != -1:
        dims = ", ".join(str(dim) for dim in tensor.dims)
        yield _problem(key, f"must be a variable dimension of input '{rule.input}', whose dims are [{dims}]")
    if tensor.data_type not in _LIMITS and tensor.data_type not in _FLOATS:
        yield _problem(key, f"cannot pad an input of type {DataType.Name(tensor.data_type)}")
    elif tensor.data_type in _LIMITS:
        least, greatest = _LIMITS[tensor.data_type]
        if not rule.value.is_integer() or not least <= rule.value <= greatest:
            yield _problem(
                f"{_VALUE}.{rule.input}", f"is no {DataType.Name(tensor.data_type)}, the type of '{rule.input}'"
            )
    if tensor.HasField("reshape"):
        yield _problem(key, f"cannot pad input '{rule.input}', which is reshaped")
    if tensor.allow_ragged_batch:
        yield _problem(key, f"cannot pad input '{rule.input}', which allows ragged batches")


def _output_problems(config: ModelConfig, rule: PaddingRule) -> Iterator[ContractError]:
    key = f"{_OUTPUTS}.{rule.input}"
    outputs = {tensor.name: tensor for tensor in config.output}
    if not outputs:
        return  # known when the config is complete
    for name, axis in rule.outputs:
        if name not in outputs:
            yield _problem(key, f"names '{name}', which is no output")
        elif not axis < len(outputs[name].dims) or outputs[name].dims[axis] != -1:
            dims = ", ".join(str(dim) for dim in outputs[name].dims)
            yield _problem(key, f"must cut a variable dimension of output '{name}', whose dims are [{dims}]")
        elif outputs[name].HasField("reshape"):
            yield _problem(key, f"cannot cut output '{name}', which is reshaped")


def _problem(key: str, what: str) -> ContractError:
    return ContractError(f"parameter '{key}' {what}", field=f"parameters[{key}].string_value")
