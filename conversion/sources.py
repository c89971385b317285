"""What a conversion starts from: something that becomes ONNX and that answers by itself, as the reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from conversion import onnx_file
from conversion.samples import Array, InputSpec

if TYPE_CHECKING:
    import onnx


class Source(Protocol):
    """A model as its own framework has it."""

    def to_onnx(self) -> onnx.ModelProto:
        """Return the model as ONNX.

        Raises:
            ConversionFailed: it cannot be expressed; the sentence names the operator or kind.
        """
        ...

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return what a request must give."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return what the framework answers, in the order of the outputs of ``to_onnx``."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Return what somebody who reads the report should know."""
        ...


class OnnxSource:
    """A model that is ONNX already."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._model = onnx_file.read(path)
        self._session: onnx_file.Session | None = None

    def to_onnx(self) -> onnx.ModelProto:
        """Return the model as it is."""
        return self._model

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the inputs without defaults."""
        return onnx_file.input_specs(self._model)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return what ONNX Runtime answers for the file as it was given."""
        if self._session is None:
            self._session = onnx_file.Session(self._path, self._path.name)
        return self._session.run(inputs)

    def notes(self) -> tuple[str, ...]:
        """Nothing to note."""
        return ()
