import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT is twice IN, NUMBER how many requests were executed so far; fails when IN begins with a negative number."""

    count = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            self.count += 1
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if value.size and value.flat[0] < 0:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative")))
                continue
            outputs = {"OUT": value * 2, "NUMBER": np.full([1], self.count, np.int32)}
            wanted = request.requested_output_names()
            tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items() if name in wanted]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
