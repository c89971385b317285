import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Decoupled: IN responses of 0, 1, 2, ...; HOW says what else happens."""

    def execute(self, requests):
        for request in requests:
            self.answer(request)
        return None

    def answer(self, request):
        sender = request.get_response_sender()
        count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flatten()[0])
        given = pb_utils.get_input_tensor_by_name(request, "HOW")
        how = "" if given is None else given.as_numpy().flatten()[0].decode()
        for index in range(count):
            last = index == count - 1
            if how == "error" and last:
                response = pb_utils.InferenceResponse(error=pb_utils.TritonError("the last one fails"))
            elif how == "error first" and index == 0:
                response = pb_utils.InferenceResponse(error=pb_utils.TritonError("the first one fails"))
            elif how == "unavailable" and last:
                error = pb_utils.TritonError("not now", pb_utils.TritonError.UNAVAILABLE)
                response = pb_utils.InferenceResponse(error=error)
            elif how == "no outputs":
                response = pb_utils.InferenceResponse([])
            else:
                outputs = [
                    pb_utils.Tensor("OUT", np.array([index], dtype=np.int32)),
                    pb_utils.Tensor("TEXT", np.array([f"n\u00b0 {index}".encode()], dtype=np.object_)),
                ]
                parameters = {"index": index, "last": last, "name": "x"} if how == "parameters" else {}
                response = (
                    pb_utils.InferenceResponse(outputs, parameters=parameters)
                    if parameters
                    else pb_utils.InferenceResponse(outputs)
                )
            sender.send(response, flags=FINAL if last and how == "with the last" else 0)
        if count == 0 or how != "with the last":
            sender.send(flags=FINAL)
