import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is the sum and OUTPUT1 the difference of the inputs."""

    def execute(self, requests):
        responses = []
        for request in requests:
            a, b = (pb_utils.get_input_tensor_by_name(request, f"INPUT{i}").as_numpy() for i in range(2))
            outputs = [
                pb_utils.Tensor("OUTPUT0", (a + b).astype(a.dtype)),
                pb_utils.Tensor("OUTPUT1", (a - b).astype(a.dtype)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
