import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Says what the model sees of a request: OUT is one JSON text."""

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        responses = []
        for request in requests:
            seen = {
                "id": request.request_id(),
                "correlation_id": request.correlation_id(),
                "parameters": json.loads(request.parameters()),
                "flags": request.flags(),
                "timeout": request.timeout(),
                "outputs": sorted(request.requested_output_names()),
                "inputs": [
                    [t.name(), list(t.as_numpy().shape), str(t.as_numpy().dtype), t.is_cpu()] for t in request.inputs()
                ],
                "cancelled": request.is_cancelled(),
            }
            text = json.dumps(seen, sort_keys=True).encode()
            outputs = [
                pb_utils.Tensor("OUT", np.array([text], dtype=np.object_)),
                pb_utils.Tensor("OTHER", np.array([1], dtype=np.int32)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
