import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT is the sum so far, which the server keeps: it comes as OLD and goes as NEW."""

    def execute(self, requests):
        responses = []
        for request in requests:
            value, old = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "OLD"))
            outputs = [pb_utils.Tensor("OUT", value + old), pb_utils.Tensor("NEW", value + old)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
