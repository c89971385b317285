"""Counts words. The node runs this file in a process of its own."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers a batch of requests, each with any number of texts."""

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
        counts = np.array([[len(text.split())] for (text,) in texts], dtype=np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("words", counts)])
