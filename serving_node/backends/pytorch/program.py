"""What all formats have in common once they are loaded: a call by the names of a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from serving_node.backends.pytorch.naming import Side, missing_output, output_places
from serving_node.backends.pytorch.tensors import Value
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.contract.signature import ModelSignature

# inputs by their names in the config -> the values of the named outputs, in order
Call = Callable[[Mapping[str, Value], Sequence[str]], list[Any]]


class Program(Protocol):
    """A loaded model on one device."""

    device: torch.device

    def signature(self, config: ModelConfig) -> ModelSignature | None:
        """Return the inputs and outputs, under the names that ``config`` has for them; None when the file is silent.

        Raises:
            InferenceError: the config does not fit the model.
        """

    def bind(self, config: ModelConfig) -> Call:
        """Return how the model is called with the inputs and outputs of a completed config.

        Raises:
            InferenceError: the config does not fit the model.
        """

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the weights and buffers, as far as they can be seen."""


class Picker:
    """Finds a config's outputs in what a model gives: a tensor, a list of strings, a tuple, a list or a dict."""

    def __init__(self, config: ModelConfig, side: Side) -> None:
        self._places = output_places(config, side)

    def pick(self, result: Any, names: Sequence[str]) -> list[Any]:
        """Return the values of the named outputs.

        Raises:
            InferenceError: INVALID_ARG, the model gave no such output.
        """
        if isinstance(result, Mapping):
            return [self._by_key(result, name) for name in names]
        if isinstance(result, torch.Tensor) or (isinstance(result, list) and result and isinstance(result[0], str)):
            result = (result,)
        if not isinstance(result, list | tuple):
            raise InferenceError(
                ErrorCode.INTERNAL,
                f"PyTorch execute failure: output must be of type Tensor, List[str], or a list, tuple or dictionary of"
                f" these, the model gave {type(result).__name__}",
            )
        for name in names:
            if self._places[name] >= len(result):
                raise missing_output(name, len(result))
        return [result[self._places[name]] for name in names]

    def _by_key(self, result: Mapping[str, Any], name: str) -> Any:
        if name in result:
            return result[name]
        place = self._places[name]
        if name.partition("__")[1] and place < len(result):
            return list(result.values())[place]
        keys = ", ".join(sorted(map(str, result)))
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"unexpected inference output '{name}', allowed outputs are: {keys}"
        )
