from __future__ import annotations

from typing import Any

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.observability.log_settings import changes_from_json, changes_from_parameters


def test_null_asks_for_nothing() -> None:
    assert changes_from_json({"log_file": None, "log_info": None, "log_format": "ISO8601"}) == {"log_format": "ISO8601"}


# What a real Triton answers over HTTP, but for the last three.
@pytest.mark.parametrize(
    ("document", "code", "sentence"),
    [
        (
            {"log_file": "x"},
            ErrorCode.UNSUPPORTED,
            "log file location can not be updated through network protocol",
        ),
        ({"log_info": 1}, ErrorCode.INTERNAL, "attempt to access JSON non-boolean as boolean"),
        ({"log_error": "true"}, ErrorCode.INTERNAL, "attempt to access JSON non-boolean as boolean"),
        (
            {"log_verbose_level": -1},
            ErrorCode.INTERNAL,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"log_verbose_level": True},
            ErrorCode.INTERNAL,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        ({"log_format": 5}, ErrorCode.INTERNAL, "attempt to access JSON non-string as string"),
        ({"log_format": "x"}, ErrorCode.INVALID_ARG, "invalid argument for log_format, got: x"),
        (
            {"log_verbose_level": 2**32},
            ErrorCode.INVALID_ARG,
            "invalid value 4294967296 for log setting 'log_verbose_level'",
        ),
        ({"log_inof": True}, ErrorCode.INVALID_ARG, "unknown log setting 'log_inof'"),
    ],
)
def test_bad_json_settings_are_refused(document: dict[str, Any], code: ErrorCode, sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        changes_from_json(document)
    assert (caught.value.code, caught.value.message) == (code, sentence)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"log_info": "x"}, "expect boolean for 'log_info'"),
        ({"log_verbose_level": True}, "expect int32 for 'log_verbose_level'"),
        ({"log_format": None}, "expect string for 'log_format'"),
        ({"log_format": "x"}, "invalid argument for log_format, got: x"),
    ],
)
def test_bad_parameters_are_refused_as_over_grpc(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        changes_from_parameters(parameters)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_ARG, sentence)
