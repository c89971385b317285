"""Small models of each format, as the files of a version."""

from __future__ import annotations

import io

import torch

PYTHON = b"""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [3]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_max_batch_size(16)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        print("running", flush=True)
        sums = [pb_utils.get_input_tensor_by_name(one, "x").as_numpy().sum(axis=1, keepdims=True) for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", one.astype(np.float32))]) for one in sums]
"""


class Norm(torch.nn.Module):
    """Shapes: vector (batch, 3) -> length (batch, 1)."""

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(vector, dim=1, keepdim=True)


def exported() -> bytes:
    """A program of torch.export for any number of rows."""
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    program = torch.export.export(Norm().eval(), (torch.zeros(2, 3),), dynamic_shapes=(batch,))
    out = io.BytesIO()
    torch.export.save(program, out)
    return out.getvalue()


def scripted() -> bytes:
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(Norm().eval()), out)
    return out.getvalue()


# Counts down from the input's first number: so many answers, the last one with the final flag or after it.
DECOUPLED = b"""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "count", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "left", "data_type": "TYPE_INT32", "dims": [1]})
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "count").as_numpy()[0])
            sender = request.get_response_sender()
            for left in range(count, -1, -1):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("left", np.array([left], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
"""

# Adds up what a sequence has sent; START and END come as the config says.
SEQUENCE = b"""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            get = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0]
            number = int(get("number"))
            if get("START"):
                self.sums[number] = 0.0
            self.sums[number] += float(get("x"))
            answers.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("sum", np.array([[self.sums[number]]], np.float32))])
            )
            if get("END"):
                del self.sums[number]
        return answers
"""
SEQUENCE_CONFIG = b"""
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "sum" data_type: TYPE_FP32 dims: 1 }
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }
  control_input { name: "number" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
}
"""
