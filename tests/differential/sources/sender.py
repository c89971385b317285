import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Not decoupled, and answers through a sender in the way that HOW says."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        how = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy().flatten()[0].decode()
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], dtype=np.int32))])
        if how == "returned":
            return response
        sender = request.get_response_sender()
        if how == "with flag":
            sender.send(response, flags=FINAL)
        elif how == "flag after":
            sender.send(response)
            sender.send(flags=FINAL)
        elif how == "flag only":
            sender.send(flags=FINAL)
        elif how == "twice":
            sender.send(response)
            sender.send(response)
            sender.send(flags=FINAL)
        elif how == "after final":
            sender.send(response, flags=FINAL)
            try:
                sender.send(response)
            except Exception as failure:
                print(failure)
        elif how == "error":
            error = pb_utils.TritonError("by the sender", pb_utils.TritonError.NOT_FOUND)
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
        return None
