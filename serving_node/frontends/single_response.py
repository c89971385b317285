"""The one response of a call that can have only one, from a model that may send its final flag apart."""

from __future__ import annotations

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceResponse


class SingleResponse:
    """Collects the responses of one request. Not needed when the first response is final."""

    __slots__ = ("_responses",)

    def __init__(self) -> None:
        self._responses: list[InferenceResponse] = []

    def add(self, response: InferenceResponse) -> InferenceResponse | None:
        """Return the response to send when ``response`` is the final one, before that None.

        An error counts as a response.

        Raises:
            InferenceError: INTERNAL, there was none or more than one.
        """
        responses = self._responses
        if not response.flag_only:
            responses.append(response)
        if not response.final:
            return None
        if len(responses) != 1:
            raise InferenceError(ErrorCode.INTERNAL, f"expected a single response, got {len(responses)}")
        return responses[0]
