import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Has each request run once more until it has run IN times; OUT is the flags of all its passes.

    With IN above 100 it answers and asks for another pass at once, which is not allowed.
    """

    def initialize(self, args):
        self.seen = {}

    def execute(self, requests):
        return [self.run(request) for request in requests]

    def run(self, request):
        wanted = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flatten()[0])
        flags = self.seen.setdefault(request.correlation_id(), [])
        start = int(pb_utils.get_input_tensor_by_name(request, "START").as_numpy().flatten()[0])
        flags.append([request.flags(), start])
        response = pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUT", np.array([[json.dumps(flags).encode()]], dtype=np.object_))]
        )
        if wanted > 100:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return response
        if len(flags) < wanted:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        del self.seen[request.correlation_id()]
        return response
