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
