"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send a point of each ring, the last one without its second coordinate, and compare."""
    points = np.array([[0.1, 0.1], [0.4, 0.4], [0.9, 0.9], [0.99, np.nan]], dtype=np.float32)
    given = triton.InferInput("input", points.shape, "FP32")
    given.set_data_from_numpy(points)
    with triton.InferenceServerClient(address) as client:
        answer = client.infer("rings", [given])
    print(answer.as_numpy("label").ravel(), answer.as_numpy("probabilities"))
    assert answer.as_numpy("label").ravel().tolist() == [0, 1, 2, 2]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
