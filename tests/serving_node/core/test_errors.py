from __future__ import annotations

import pickle

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error


def test_an_error_crosses_processes_whole() -> None:
    error = pickle.loads(pickle.dumps(InferenceError(ErrorCode.NOT_FOUND, "no such model")))
    assert isinstance(error, InferenceError)
    assert (error.code, error.message, str(error)) == (ErrorCode.NOT_FOUND, "no such model", "no such model")
    assert repr(error) == "InferenceError(NOT_FOUND, 'no such model')"


def test_an_error_of_a_request_names_it() -> None:
    assert request_error(ErrorCode.INTERNAL, "7", "bad").message == "[request id: 7] bad"
    assert request_error(ErrorCode.INTERNAL, "", "bad").message == "[request id: <id_unknown>] bad"
