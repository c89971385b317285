"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send two rows and compare."""
    x = np.array([[1, -2, 3, -4], [-1, -1, -1, 0.5]], dtype=np.float32)
    given = triton.InferInput("x", x.shape, "FP32")
    given.set_data_from_numpy(x)
    with triton.InferenceServerClient(address) as client:
        total = client.infer("relu_sum", [given]).as_numpy("total")
    print(total)
    assert np.allclose(total, [[4], [0.5]])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
