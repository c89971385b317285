import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT is the running sum of a sequence; SEEN holds its controls."""

    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            value = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flatten()[0])
            seen = [
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().flatten()[0])
                for name in ("START", "END", "READY", "CORRID")
            ]
            start, _, ready, corrid = seen
            if ready:
                self.sums[corrid] = value + (0 if start else self.sums.get(corrid, 0))
            out = np.array([[self.sums.get(corrid, 0)]], dtype=np.int32)
            outputs = [pb_utils.Tensor("OUT", out), pb_utils.Tensor("SEEN", np.array([seen], dtype=np.int32))]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
