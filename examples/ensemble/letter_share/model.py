"""The share of vowels among the letters of a text."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """text (batch, 1) -> share (batch, 1)."""

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
        shares = np.array([[_share(text.decode().lower())] for (text,) in texts], dtype=np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("share", shares)])


def _share(text):
    letters = [letter for letter in text if letter.isalpha()]
    return sum(letter in "aeiou" for letter in letters) / max(len(letters), 1)
