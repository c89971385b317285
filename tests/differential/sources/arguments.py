import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT holds what initialize was told."""

    def initialize(self, args):
        told = {key: value for key, value in args.items() if key != "model_config"}
        told["config"] = json.loads(args["model_config"])
        self.text = json.dumps(told, sort_keys=True)

    def execute(self, requests):
        tensor = pb_utils.Tensor("OUT", np.array([self.text.encode()], dtype=np.object_))
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]
