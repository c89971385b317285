"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send two texts through both models and compare."""
    text = np.array([["Aeolian"], ["rhythm"]], dtype=object)
    given = triton.InferInput("text", text.shape, "BYTES")
    given.set_data_from_numpy(text)
    with triton.InferenceServerClient(address) as client:
        score = client.infer("text_score", [given]).as_numpy("score")
    print(score)
    assert score.tolist() == [[1.0], [0.0]]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
