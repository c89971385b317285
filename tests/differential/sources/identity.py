import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Each output OUT* is the input IN* of the same ending, as far as it was sent."""

    def execute(self, requests):
        responses = []
        for request in requests:
            outputs = []
            for tensor in request.inputs():
                name = tensor.name().replace("IN", "OUT", 1)
                if name.endswith("BF16"):  # numpy has no such type
                    outputs.append(pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack()))
                else:
                    outputs.append(pb_utils.Tensor(name, tensor.as_numpy()))
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
