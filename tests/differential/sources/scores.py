import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Scores of every kind for classification, the same rows for each row of IN."""

    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().shape[0]
            scores = np.array([0.25, 3.5, -1.0, 3.5, 1e10], np.float32)
            arrays = {
                "FLOATS": scores,
                "DOUBLES": scores.astype(np.float64) / 3,
                "HALVES": scores.clip(-10, 10).astype(np.float16),
                "INTS": np.array([7, -3, 9, 0, 9], np.int32),
                "BYTES": np.array([7, 3, 200, 0, 9], np.uint8),
                "BOOLS": np.array([True, False, True, False, False]),
                "TEXTS": np.array([b"a", b"b", b"c", b"d", b"e"], np.object_),
            }
            outputs = [pb_utils.Tensor(name, np.stack([array] * rows)) for name, array in arrays.items()]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
