"""The parameters of a model that runs on OpenVINO. Pure.

Source: the parameters of Triton's OpenVINO backend, with its texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_HINTS = ("latency", "throughput", "cumulative_throughput")


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    """``properties`` are those of the compiled model; ``device`` is OpenVINO's name of where it runs.

    ``fixed_batch``: the model is compiled for ``max_batch_size`` rows and nothing else. ``pads``: smaller batches are
    then filled up with zeros. ``reshapes``: the dims of the config replace those of the file.
    """

    device: str
    properties: dict[str, str]
    extension: str = ""
    fixed_batch: bool = False
    pads: bool = False
    reshapes: bool = False


def openvino_settings(config: ModelConfig, *, threads: int, instances: int) -> OpenVinoSettings:
    """Return the settings; ``threads`` in all and a stream for each of the ``instances`` unless the config says more.

    Raises:
        InferenceError: INVALID_ARG when a parameter is not what it should be.
    """
    values = {name: parameter.string_value.lower() for name, parameter in config.parameters.items()}
    device = values.get("TARGET_DEVICE", "").upper() or "CPU"
    properties: dict[str, str] = {}
    if device == "CPU":
        # OpenVINO would compute in less than FP32 where the processor can, so differently from node to node; and it
        # would tie the threads of every model to the same first cores
        properties = {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": "NO"}
        properties |= {"INFERENCE_NUM_THREADS": str(threads), "NUM_STREAMS": str(instances)}
    for name in ("INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS"):
        if text := values.get(name):
            if not text.isdecimal():
                raise _refusal(name, "a non-negative number", text)
            properties[name] = text
    if device == "CPU":  # where OpenVINO compiles with the threads of inference, and knows no other number
        properties.pop("COMPILATION_NUM_THREADS", None)
    if text := values.get("HINT_BF16"):
        if text != "yes":
            raise _refusal("HINT_BF16", "YES", text)
        properties["INFERENCE_PRECISION_HINT"] = "bf16"
    if text := values.get("PERFORMANCE_HINT"):
        if text not in _HINTS:
            raise _refusal("PERFORMANCE_HINT", "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT", text)
        properties["PERFORMANCE_HINT"] = text.upper()
        properties.pop("NUM_STREAMS", None)  # the hint decides
    if text := values.get("NUM_STREAMS"):
        if text not in ("auto", "numa") and not text.isdecimal():
            raise _refusal("NUM_STREAMS", "either AUTO/NUMA/<int_value>", text)
        properties["NUM_STREAMS"] = text.upper()
    return OpenVinoSettings(
        device=device,
        properties=properties,
        extension=config.parameters["CPU_EXTENSION_PATH"].string_value if "CPU_EXTENSION_PATH" in values else "",
        fixed_batch=values.get("SKIP_OV_DYNAMIC_BATCHSIZE") == "yes",
        pads=values.get("ENABLE_BATCH_PADDING") == "yes",
        reshapes=values.get("RESHAPE_IO_LAYERS") == "yes",
    )


def _refusal(name: str, expected: str, text: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"expected the parameter '{name}' to be {expected}, got {text}")
