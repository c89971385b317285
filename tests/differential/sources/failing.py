# ruff: noqa: C901 - a list of ways
import os
import signal
import time

import numpy as np
import triton_python_backend_utils as pb_utils

CODES = (
    "UNKNOWN",
    "INTERNAL",
    "NOT_FOUND",
    "INVALID_ARG",
    "UNAVAILABLE",
    "UNSUPPORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
)


class TritonPythonModel:
    """Fails in the way that the request asks for."""

    def execute(self, requests):
        return [self.answer(pb_utils.get_input_tensor_by_name(r, "HOW").as_numpy()[0].decode()) for r in requests][
            : self.count(requests)
        ]

    def count(self, requests):
        how = pb_utils.get_input_tensor_by_name(requests[0], "HOW").as_numpy()[0].decode()
        return 0 if how == "too few" else len(requests)

    def answer(self, how):
        good = pb_utils.Tensor("OUT", np.array([1], dtype=np.int32))
        if how in CODES:
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(f"asked for {how}", getattr(pb_utils.TritonError, how))
            )
        if how == "default":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("asked for the default"))
        if how == "empty message":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(""))
        if how == "error and outputs":
            return pb_utils.InferenceResponse([good], pb_utils.TritonError("and outputs"))
        if how == "raise":
            raise ValueError("asked to raise")
        if how == "raise triton":
            raise pb_utils.TritonModelException("asked to raise")
        if how == "raise nothing":
            raise RuntimeError
        if how == "raise unicode":
            raise ValueError("caf\u00e9 \u2603")
        if how == "none":
            return None
        if how == "text":
            return "no response"
        if how == "no outputs":
            return pb_utils.InferenceResponse([])
        if how == "unknown output":
            return pb_utils.InferenceResponse([pb_utils.Tensor("NOBODY", np.array([1], dtype=np.int32))])
        if how == "wrong type":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1.5], dtype=np.float32))])
        if how == "wrong shape":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[1, 2], [3, 4]], dtype=np.int32))])
        if how == "twice":
            return pb_utils.InferenceResponse([good, good])
        if how == "complex":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1j]))])
        if how == "list":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", [1])])
        if how == "exit":
            os._exit(3)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how.startswith("sleep "):
            time.sleep(float(how.split()[1]))
        return pb_utils.InferenceResponse([good])
