"""Settings beyond Triton: the keys in ``parameters`` of a config that this node itself reads.

Every such key begins with ``flotilla.``, so that none can be meant for a backend. The form of the console offers them
as fields, ``validate`` checks them, and the node reads them with ``parameter``. Described in
docs/reference/scheduling.md.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import ModelConfig

PREFIX = "flotilla."


class ParameterKind(StrEnum):
    """What the text of a parameter is."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    SWITCH = "switch"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One key. Those ``per_input`` are followed by a dot and the name of an input: ``flotilla.padding.ids``.

    ``default`` is what counts when the key is left out, as text. ``section`` is the field of the config without which
    it means nothing, such as ``dynamic_batching``; it is then refused. Limits include both ends. Texts are marked with
    ``_`` for translation.
    """

    key: str
    kind: ParameterKind
    label: str
    help: str
    default: str = ""
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    section: str = ""
    per_input: bool = False


def _(text: str) -> str:
    return text


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "flotilla.host",
        ParameterKind.CHOICE,
        _("Runs in"),
        _("Threads of the node's process, or worker processes, where a crash hurts no other model; empty: as is best."),
        choices=("thread", "process"),
    ),
    Parameter(
        "flotilla.keep_loaded",
        ParameterKind.SWITCH,
        _("Keep loaded"),
        _("Never unload the model to make room for another one, where the node loads models on their first request."),
        default="false",
    ),
    Parameter(
        "flotilla.memory_bytes",
        ParameterKind.INTEGER,
        _("Memory"),
        _("What the model takes of the node's budget for models; left empty, what the backend says, or its files."),
        minimum=1,
        unit="bytes",
    ),
    Parameter(
        "flotilla.padding",
        ParameterKind.INTEGER,
        _("Padded dimension"),
        _("Fill this dimension of the input up to a common length, so that different lengths share a batch; from 0."),
        minimum=0,
        maximum=63,
        section="dynamic_batching",
        per_input=True,
    ),
    Parameter(
        "flotilla.padding_value",
        ParameterKind.NUMBER,
        _("Padding value"),
        _("What the input is filled up with."),
        default="0",
        section="dynamic_batching",
        per_input=True,
    ),
    Parameter(
        "flotilla.padding_multiple",
        ParameterKind.INTEGER,
        _("Length is a multiple of"),
        _("Round the common length up, so that the model meets fewer different shapes."),
        default="1",
        minimum=1,
        maximum=65536,
        section="dynamic_batching",
        per_input=True,
    ),
    Parameter(
        "flotilla.padding_mask",
        ParameterKind.TEXT,
        _("Input that receives the mask"),
        _("Model input that gets 1 where there is content and 0 where there is padding: NAME or NAME:TYPE."),
        section="dynamic_batching",
        per_input=True,
    ),
    Parameter(
        "flotilla.padding_lengths",
        ParameterKind.TEXT,
        _("Input that receives the lengths"),
        _("Model input that gets the length of each row before padding: NAME or NAME:TYPE."),
        section="dynamic_batching",
        per_input=True,
    ),
    Parameter(
        "flotilla.padding_outputs",
        ParameterKind.TEXT,
        _("Outputs that are cut back"),
        _("Outputs that get the length of the request again: names, each alone or as NAME:DIMENSION, with commas."),
        section="dynamic_batching",
        per_input=True,
    ),
    Parameter(
        "flotilla.p99_target_microseconds",
        ParameterKind.INTEGER,
        _("Target of the 99th percentile"),
        _("Wait for larger batches only as long as 99 of 100 requests are answered within this time."),
        minimum=1,
        maximum=3_600_000_000,
        unit="microseconds",
        section="dynamic_batching",
    ),
    Parameter(
        "flotilla.p99_max_delay_microseconds",
        ParameterKind.INTEGER,
        _("Longest adaptive delay"),
        _("The adaptive delay never exceeds this; left empty, half of the target."),
        minimum=1,
        maximum=3_600_000_000,
        unit="microseconds",
        section="dynamic_batching",
    ),
    Parameter(
        "flotilla.max_requests",
        ParameterKind.INTEGER,
        _("Most requests inside"),
        _("Refuse further requests at once while so many are inside the ensemble, before any of its steps runs."),
        minimum=1,
        maximum=1_000_000_000,
        unit="requests",
        section="ensemble_scheduling",
    ),
    Parameter(
        "flotilla.torch_class",
        ParameterKind.TEXT,
        _("Class of the PyTorch module"),
        _("Which class of model.py is the model, where it has several; left empty, the first by name."),
    ),
)
"""All of them, in the order of the form."""


def find(key: str) -> Parameter | None:
    """Return what a key of ``parameters`` means, None when it is not one of ours."""
    for known in PARAMETERS:
        if key == known.key if not known.per_input else key.startswith(f"{known.key}.") and key != f"{known.key}.":
            return known
    return None


def parameter(config: ModelConfig, key: str) -> bool | int | float | str | None:
    """Return the value of a key, or its default; None when it has neither.

    Raises:
        ContractError: the text is not what it should be.
    """
    known = find(key)
    assert known is not None, key
    text = config.parameters[key].string_value if key in config.parameters else known.default
    return None if text == "" and known.kind is not ParameterKind.TEXT else _read(known, key, text)


def parameter_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield what is wrong with the keys of ours in a config."""
    inputs = {tensor.name for tensor in config.input}
    for key in sorted(config.parameters):
        if not key.startswith(PREFIX):
            continue
        known, field = find(key), f"parameters[{key}]"
        if known is None:
            close = difflib.get_close_matches(key[:64], [known.key for known in PARAMETERS], n=1)
            hint = f", did you mean '{close[0]}'?" if close else ""
            yield ContractError(f"parameter '{key}' for {config.name} is not known{hint}", field=field)
        elif known.per_input and inputs and key.removeprefix(f"{known.key}.") not in inputs:
            name = key.removeprefix(f"{known.key}.")
            yield ContractError(f"parameter '{key}' for {config.name} names '{name}', which is no input", field=field)
        elif known.section and not config.HasField(known.section):  # type: ignore[arg-type]
            yield ContractError(f"parameter '{key}' for {config.name} needs '{known.section}'", field=field)
        else:
            try:
                _read(known, key, config.parameters[key].string_value)
            except ContractError as error:
                yield error


def _read(known: Parameter, key: str, text: str) -> bool | int | float | str:
    value = _parsed(known, text)
    if value is None:
        expected = {
            ParameterKind.INTEGER: "a whole number",
            ParameterKind.NUMBER: "a number",
            ParameterKind.SWITCH: "true or false",
            ParameterKind.CHOICE: f"one of {', '.join(known.choices)}",
        }[known.kind]
        raise _refusal(key, f"must be {expected}, got '{text}'")
    if not isinstance(value, str):
        if known.minimum is not None and value < known.minimum:
            raise _refusal(key, f"must be at least {known.minimum:g}, got {text}")
        if known.maximum is not None and value > known.maximum:
            raise _refusal(key, f"must be at most {known.maximum:g}, got {text}")
    return value


def _parsed(known: Parameter, text: str) -> bool | int | float | str | None:
    """Return the value of a text, None when it is of another kind."""
    if known.kind is ParameterKind.SWITCH:
        return {"true": True, "false": False}.get(text.lower())
    if known.kind is ParameterKind.CHOICE:
        return text if text in known.choices else None
    if known.kind is ParameterKind.TEXT:
        return text
    try:
        number = int(text) if known.kind is ParameterKind.INTEGER else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refusal(key: str, what: str) -> ContractError:
    return ContractError(f"parameter '{key}' {what}", field=f"parameters[{key}].string_value")
