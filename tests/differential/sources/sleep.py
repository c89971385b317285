import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sleeps the longest of the asked times; OUT is how many requests were in the batch."""

    def execute(self, requests):
        seconds = [float(pb_utils.get_input_tensor_by_name(r, "SECONDS").as_numpy().flatten()[0]) for r in requests]
        time.sleep(max(seconds))
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "SECONDS").as_numpy().shape[0]
            out = np.full((rows, 1), len(requests), dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses
