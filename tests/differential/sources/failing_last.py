import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Fails when the text ends with 1."""

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy()[0].decode()
            if text.endswith("1"):
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("not this one")))
            else:
                tensor = pb_utils.Tensor("OUT", np.array([int(text[-1])], dtype=np.int32))
                responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
