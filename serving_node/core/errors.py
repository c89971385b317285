"""The node's one exception. Frontends map its code to HTTP or gRPC numbers; nobody else knows those."""

from __future__ import annotations

from serving_node.contract.errors import ErrorCode


class InferenceError(Exception):
    """A request, or an operation on the repository, failed with a code and a sentence for the caller."""

    __slots__ = ("code", "message")

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[InferenceError], tuple[ErrorCode, str]]:
        # exceptions pickle their args, which hold the sentence only
        return type(self), (self.code, self.message)

    def __repr__(self) -> str:
        return f"InferenceError({self.code.value}, {self.message!r})"


class CodeRefusedError(InferenceError):
    """A model cannot be loaded because it is code, which is not permitted here."""

    __slots__ = ()


def request_error(code: ErrorCode, request_id: str, sentence: str) -> InferenceError:
    """Return an error whose text begins with the request's id, as Triton's core writes it."""
    return InferenceError(code, f"[request id: {request_id or '<id_unknown>'}] {sentence}")
