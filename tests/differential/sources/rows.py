import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Runs for as many milliseconds as the largest IN; SEEN is what it saw of its whole batch.

    Of a row without a request nothing is said but that it is none, for what its inputs hold is nobody's promise.
    """

    def initialize(self, args):
        self.instance = args["model_instance_name"]
        config = json.loads(args["model_config"])
        self.controls = [control["name"] for control in config["sequence_batching"]["control_input"]]
        self.rows = [1] if int(config["max_batch_size"]) else []

    def execute(self, requests):
        seen = [self.look(request) for request in requests]
        time.sleep(max(row["IN"][0] for row in seen if row is not None) / 1000)
        text = json.dumps([self.instance, *seen])
        return [self.respond(text) for _ in requests]

    def look(self, request):
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if "READY" in arrays and not arrays["READY"].flatten()[0]:
            absent = [arrays[name].flatten().tolist()[0] for name in self.controls if name != "READY"]
            assert not any(absent) and not request.correlation_id() and not request.flags()
            return None
        row = {"id": request.correlation_id(), "flags": request.flags(), "IN": arrays["IN"].flatten().tolist()}
        for name in self.controls:
            value = arrays[name].flatten().tolist()[0]
            row[name] = [
                str(arrays[name].dtype),
                list(arrays[name].shape),
                value if type(value) is not bytes else value.decode(),
            ]
        return row

    def respond(self, text):
        seen = np.array([text.encode()], dtype=np.object_).reshape([*self.rows, 1])
        return pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", seen)])
