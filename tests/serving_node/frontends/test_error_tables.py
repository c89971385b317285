from __future__ import annotations

from serving_node.contract.errors import ErrorCode
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.frontends.http_status import HTTP_STATUS_OF


def test_every_code_has_a_number_in_every_protocol() -> None:
    assert set(STATUS_OF) == set(ErrorCode)
    assert set(HTTP_STATUS_OF) == set(ErrorCode)
