"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send one row on each side and compare."""
    left, right = np.array([[1, 2, 3, 4]], np.float32), np.array([[4, 3, 2, 1]], np.float32)
    inputs = []
    for name, data in (("LEFT__0", left), ("RIGHT__1", right)):
        given = triton.InferInput(name, data.shape, "FP32")
        given.set_data_from_numpy(data)
        inputs.append(given)
    with triton.InferenceServerClient(address) as client:
        answer = client.infer("sum_difference", inputs)
    print(answer.as_numpy("SUM__0"), answer.as_numpy("DIFFERENCE__1"))
    assert np.array_equal(answer.as_numpy("SUM__0"), left + right)
    assert np.array_equal(answer.as_numpy("DIFFERENCE__1"), left - right)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
