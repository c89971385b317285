import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The response has the parameters that the input holds as JSON."""

    def execute(self, requests):
        responses = []
        for request in requests:
            wanted = json.loads(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flatten()[0])
            tensor = pb_utils.Tensor("OUT", np.array([1], dtype=np.int32))
            try:
                responses.append(pb_utils.InferenceResponse([tensor], parameters=wanted))
            except Exception as failure:
                error = pb_utils.TritonError(f"{type(failure).__name__}: {failure}")
                responses.append(pb_utils.InferenceResponse(error=error))
        return responses
