"""What models import as ``triton_python_backend_utils``: tensors, requests, responses, errors, logging and helpers.

Names, arguments, texts of errors and what is returned are those of Triton's Python backend. Needs numpy and the
standard library only. The process that runs the model installs ``_runtime``, through which responses and log lines
leave; everything else happens here.
"""

from __future__ import annotations

import enum
import json
import sys
from typing import Any

from flotilla_config import (  # type: ignore[import-not-found]
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from flotilla_metrics import Metric, MetricFamily  # type: ignore[import-not-found]
from flotilla_tensor import (  # type: ignore[import-not-found]
    TRITON_STRING_TO_NUMPY,
    Tensor,
    TritonModelException,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
    wire_bytes,
)

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceTrace",
    "Logger",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseSender",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
    "wire_bytes",
]

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

# What the process has for us: send(sender, response, flags), forgotten(handle), is_cancelled(handle), rescheduled(),
# model_dir(), exec(request, decoupled), async_exec(request, decoupled), ask(verb, model, more, files) and
# log(level, text, file, line).
_runtime: Any = None


# -- errors and logging


def _member_text(member: enum.Enum) -> str:
    """Return a member as Triton prints it; newer Pythons print the number of an IntEnum."""
    return f"{type(member).__name__}.{member.name}"


class __ErrorCode(enum.IntEnum):
    """Kinds of errors, by Triton's numbers."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    __str__ = _member_text


_ErrorCode = __ErrorCode


class TritonError:
    """An error of a response: its text and its kind, which decides on the status that clients get."""

    __slots__ = ("_code", "_message")

    UNKNOWN = _ErrorCode.UNKNOWN
    INTERNAL = _ErrorCode.INTERNAL
    NOT_FOUND = _ErrorCode.NOT_FOUND
    INVALID_ARG = _ErrorCode.INVALID_ARG
    UNAVAILABLE = _ErrorCode.UNAVAILABLE
    UNSUPPORTED = _ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = _ErrorCode.ALREADY_EXISTS
    CANCELLED = _ErrorCode.CANCELLED

    def __init__(self, message: str, code: int = _ErrorCode.INTERNAL) -> None:
        self._message = _text("TritonError", "message", message)
        self._code = _ErrorCode(code)

    def message(self) -> str:
        """Return the text."""
        return self._message

    def code(self) -> int:
        """Return the kind."""
        return self._code


class LogLevel(enum.IntEnum):
    """Levels of lines in the log."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3

    __str__ = _member_text


class Logger:
    """Writes lines to the log of the server."""

    LogLevel = LogLevel
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: int = LogLevel.INFO) -> None:
        """Write a line of a level."""
        _log(level, message)

    @staticmethod
    def log_info(message: str) -> None:
        """Write a line."""
        _log(LogLevel.INFO, message)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write a warning."""
        _log(LogLevel.WARNING, message)

    @staticmethod
    def log_error(message: str) -> None:
        """Write an error."""
        _log(LogLevel.ERROR, message)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write a line that shows only where the log is verbose."""
        _log(LogLevel.VERBOSE, message)


def _log(level: int, message: str) -> None:
    if not isinstance(level, LogLevel):
        raise TypeError(f"Logger: level must be one of Logger.LogLevel, not {type(level).__name__}")
    frame = sys._getframe(2)
    text = _text("Logger", "message", message)
    if _runtime is None:
        sys.stderr.write(f"{text}\n")
    else:
        _runtime.log(int(level), text, frame.f_code.co_filename, frame.f_lineno)


def _text(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where}: {name} must be str, not {type(value).__name__}")
    return value


# -- requests and responses


class MemoryType(enum.IntEnum):
    """Kinds of memory, by Triton's numbers."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1

    __str__ = _member_text


TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU


class PreferredMemory:
    """Where the outputs of a request to another model should lie."""

    __slots__ = ("_device", "_kind")

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        if not isinstance(preferred_memory_type, MemoryType):
            raise TypeError("PreferredMemory: preferred_memory_type must be one of the TRITONSERVER_MEMORY constants")
        self._kind = preferred_memory_type
        self._device = int(preferred_device_id)


class InferenceTrace:
    """The trace of a request."""

    __slots__ = ("_context", "_handle")

    def __init__(self, context: str = "") -> None:
        self._context = context
        self._handle = 0

    def get_context(self) -> str | None:
        """Return the trace context in JSON, None when the request is not traced with OpenTelemetry."""
        return self._context or None


class InferenceResponse:
    """What a model answers to a request: tensors, or an error."""

    __slots__ = ("_error", "_output_tensors", "_parameters")

    def __init__(self, output_tensors: Any = (), error: TritonError | None = None, parameters: Any = None) -> None:
        tensors = list(output_tensors)
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise TypeError(f"InferenceResponse: output_tensors must hold Tensor, not {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse: error must be TritonError, not {type(error).__name__}")
        self._output_tensors = tensors
        self._error = error
        self._parameters = _parameters_text(parameters) if parameters is not None else ""

    def output_tensors(self) -> list[Tensor]:
        """Return the tensors."""
        return self._output_tensors

    def has_error(self) -> bool:
        """Return whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return the error, None when there is none."""
        return self._error

    def parameters(self) -> str:
        """Return the parameters, a JSON object in a string."""
        return self._parameters or "{}"


def _parameters_text(parameters: Any) -> str:
    """Return parameters in JSON, an empty text when there are none."""
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, found type {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return json.dumps(parameters) if parameters else ""


class ResponseSender:
    """Sends responses of one request, on any thread, also after ``execute`` has returned."""

    __slots__ = ("_closed", "_decoupled", "_handle", "_outputs", "_sent")

    def __init__(self, handle: int, outputs: Any, decoupled: bool | None) -> None:
        self._handle = handle
        self._outputs = outputs
        self._decoupled = decoupled
        self._closed = decoupled is None
        self._sent = 0

    def __del__(self) -> None:
        if not self._closed and _runtime is not None:
            _runtime.forgotten(self._handle)

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, or with the final flag perhaps none.

        Raises:
            TritonModelException: after the final flag; a second response of a model that is not decoupled.
        """
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send: response must be InferenceResponse, not {type(response).__name__}")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if flags == 0 and response is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        self._note(response, flags)
        _runtime.send(self, response, flags)

    def is_cancelled(self) -> bool:
        """Return whether the client has left."""
        return self._handle >= 0 and bool(_runtime.is_cancelled(self._handle))

    def _note(self, response: InferenceResponse | None, flags: int) -> None:
        """Count a response; raise TritonModelException when it must not be sent."""
        if not self._decoupled:
            if self._decoupled is None:
                raise TritonModelException(
                    "Unable to send response. Response sender has no reference to the decoupled state of the model."
                )
            if response is not None:
                if self._sent:
                    raise TritonModelException(
                        "Unable to send response. Non-decoupled model cannot send more than one response."
                    )
            elif flags and not self._sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        self._sent += 1
        if flags:
            self._closed = True


class InferenceRequest:
    """A request to the model; or, made by the model, one to another model."""

    __slots__ = (
        "_correlation_id",
        "_flags",
        "_inputs",
        "_model_name",
        "_model_version",
        "_parameters",
        "_preferred_memory",
        "_release_flags",
        "_request_id",
        "_sender",
        "_timeout",
        "_trace",
    )

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Any = None,
        requested_output_names: Any = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if inputs is None or requested_output_names is None or model_name is None:
            raise TypeError("InferenceRequest: inputs, requested_output_names and model_name are needed")
        if not isinstance(correlation_id, (int, str)):
            raise TritonModelException("Correlation ID must be integer or string")
        if isinstance(correlation_id, int) and not 0 <= correlation_id < 2**64:
            raise RuntimeError("InferenceRequest: correlation_id must be in the range of an unsigned 64-bit integer")
        _text("InferenceRequest", "request_id", request_id)
        _text("InferenceRequest", "model_name", model_name)
        numbers: list[tuple[str, Any, int, int]] = [
            ("model_version", model_version, -(2**63), 63),
            ("flags", flags, 0, 32),
            ("timeout", timeout, 0, 63),
        ]
        for name, value, least, bits in numbers:
            if not isinstance(value, int) or not least <= value < 2**bits:
                raise TypeError(f"InferenceRequest: {name} must be a whole number in its range, not {value!r}")
        where = f" for request with id '{request_id}' and model name '{model_name}' should not be empty."
        self._inputs: list[Tensor] = list(inputs)
        names: list[str] = list(requested_output_names)
        if any(tensor is None for tensor in self._inputs):
            raise TritonModelException(f"Input tensor{where}")
        if not all(isinstance(tensor, Tensor) for tensor in self._inputs):
            raise TypeError("InferenceRequest: inputs must hold tensors")
        if not all(names):
            raise TritonModelException(f"Requested output name{where}")
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        self._preferred_memory = preferred_memory
        self._trace = trace
        self._parameters = _parameters_text(parameters) if parameters is not None else ""
        self._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        self._sender = ResponseSender(-1, names, None)

    @classmethod
    def _from_wire(
        cls,
        inputs: list[Tensor],
        sender: ResponseSender,
        request_id: str,
        correlation_id: int | str,
        model_name: str,
        model_version: int,
        flags: int,
        timeout: int,
        parameters: str,
    ) -> InferenceRequest:
        """Return a request that the node sent."""
        request = cls.__new__(cls)
        request._inputs = inputs
        request._sender = sender
        request._request_id = request_id
        request._correlation_id = correlation_id
        request._model_name = model_name
        request._model_version = model_version
        request._flags = flags
        request._timeout = timeout
        request._parameters = parameters
        request._preferred_memory = None
        request._trace = None
        request._release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        return request

    def inputs(self) -> list[Tensor]:
        """Return the inputs."""
        return self._inputs

    def request_id(self) -> str:
        """Return the id that the client gave, perhaps empty."""
        return self._request_id

    def correlation_id(self) -> int | str:
        """Return the id of the sequence, 0 when there is none."""
        return self._correlation_id

    def requested_output_names(self) -> set[str]:
        """Return the outputs that the client wants: all when it named none."""
        return set(self._sender._outputs)

    def flags(self) -> int:
        """Return the flags of the sequence."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set the flags of the sequence."""
        self._flags = _flags("set_flags", flags)

    def timeout(self) -> int:
        """Return the timeout in microseconds, 0 when there is none."""
        return self._timeout

    def parameters(self) -> str:
        """Return the parameters, a JSON object in a string."""
        return self._parameters or "{}"

    def trace(self) -> InferenceTrace:
        """Return the trace."""
        return self._trace or InferenceTrace()

    def get_response_sender(self) -> ResponseSender:
        """Return what sends the responses of this request."""
        return self._sender

    def is_cancelled(self) -> bool:
        """Return whether the client has left."""
        return self._sender.is_cancelled()

    def set_release_flags(self, flags: int) -> None:
        """Say what becomes of the request when ``execute`` returns."""
        self._release_flags = _flags("set_release_flags", flags)
        if flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE and _runtime is not None:
            _runtime.rescheduled()

    def exec(self, decoupled: bool = False) -> Any:
        """Run the request on another model of the server; return its response, or an iterator over several.

        What goes wrong is an error in the response. Raises TritonModelException outside of ``execute``.
        """
        return _runtime_call("exec", self, decoupled)

    def async_exec(self, decoupled: bool = False) -> Any:
        """As ``exec``, but return a future of the running event loop. Raises RuntimeError without one."""
        return _runtime_call("async_exec", self, decoupled)


def _flags(where: str, value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**32:
        raise TypeError(f"{where}: flags must be a whole number of 32 bits, not {value!r}")
    return value


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """Return an input of a request, None when there is none of that name."""
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """Return an output of a response, None when there is none of that name."""
    for tensor in inference_response._output_tensors:
        if tensor._name == name:
            return tensor
    return None


# -- what needs more of the server than answers and log lines


def _runtime_call(name: str, *arguments: Any) -> Any:
    """Call what the process offers. Raises TritonModelException where there is none."""
    if _runtime is None:
        raise TritonModelException("The server is out of reach here.")
    return getattr(_runtime, name)(*arguments)


def get_model_dir() -> str:
    """Return the folder of the version that runs."""
    return str(_runtime_call("model_dir"))


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> None:
    """Load a model of the server, with a config and files of one's own if given.

    ``files`` are named as in the server's interface, ``file:1/model.py``. Raises TritonModelException.
    """
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and file contents"
        )
    for name, content in (files or {}).items():
        if not isinstance(content, bytes):
            raise TypeError(f"load_model: the content of '{name}' must be bytes, not {type(content).__name__}")
        if not name.startswith("file:"):
            raise TritonModelException(f"Failed to load model: unrecognized load parameter '{name}'.")
    contents = {name[len("file:") :]: content for name, content in (files or {}).items()}
    _runtime_call("ask", "load", _text("load_model", "model_name", model_name), config or None, contents)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model of the server; returns before what runs has ended. Raises TritonModelException."""
    _runtime_call("ask", "unload", _text("unload_model", "model_name", model_name), bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Return whether a model of the server is ready. Raises TritonModelException, the version is not a number."""
    version = _text("is_model_ready", "model_version", model_version)
    return bool(_runtime_call("ask", "ready", _text("is_model_ready", "model_name", model_name), version))
