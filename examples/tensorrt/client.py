"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send two rows and compare."""
    x = np.array([[1, 4, 2, 3], [-4, -3, -2, -1]], dtype=np.float32)
    given = triton.InferInput("x", x.shape, "FP32")
    given.set_data_from_numpy(x)
    with triton.InferenceServerClient(address) as client:
        largest = client.infer("row_max", [given]).as_numpy("largest")
    print(largest)
    assert np.array_equal(largest, [[4], [-1]])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
