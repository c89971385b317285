"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send two rows and compare."""
    vector = np.array([[3, 4, 0], [1, 2, 2]], dtype=np.float32)
    given = triton.InferInput("vector", vector.shape, "FP32")
    given.set_data_from_numpy(vector)
    with triton.InferenceServerClient(address) as client:
        length = client.infer("row_norm", [given]).as_numpy("length")
    print(length)
    assert np.allclose(length, [[5], [3]])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
