"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send two rows and compare."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    given = triton.InferInput("x", x.shape, "FP32")
    given.set_data_from_numpy(x)
    with triton.InferenceServerClient(address) as client:
        y = client.infer("scale_shift", [given]).as_numpy("y")
    print(y)
    assert np.array_equal(y, 2 * x + 1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
