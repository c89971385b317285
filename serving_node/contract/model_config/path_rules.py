"""A config names files; none of them may lie outside the folder of its model."""

from __future__ import annotations

from collections.abc import Iterator

from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import ModelConfig


def is_inside(path: str) -> bool:
    """Return whether a path from a config stays in the folder it is relative to."""
    parts = path.split("/")
    return path.isprintable() and "\\" not in path and all(part not in ("", "..") for part in parts)


def path_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield every file name that is absolute or climbs out of its folder."""
    if config.runtime and not is_inside(config.runtime):
        yield ContractError(f"backend library name '{config.runtime}' escapes backend directory", field="runtime")
    for field, path in _paths(config):
        if path and not is_inside(path):
            yield ContractError(f"file name '{path}' escapes the model directory for {config.name}", field=field)


def _paths(config: ModelConfig) -> Iterator[tuple[str, str]]:
    yield "default_model_filename", config.default_model_filename
    for capability in sorted(config.cc_model_filenames):
        yield f"cc_model_filenames[{capability}]", config.cc_model_filenames[capability]
    for index, output in enumerate(config.output):
        yield f"output[{index}].label_filename", output.label_filename
    for index, path in enumerate(config.model_operations.op_library_filename):
        yield f"model_operations.op_library_filename[{index}]", path
    for index, warmup in enumerate(config.model_warmup):
        for name in sorted(warmup.inputs):
            yield f"model_warmup[{index}].inputs[{name}].input_data_file", warmup.inputs[name].input_data_file
    for index, state in enumerate(config.sequence_batching.state):
        for place, initial in enumerate(state.initial_state):
            yield f"sequence_batching.state[{index}].initial_state[{place}].data_file", initial.data_file
