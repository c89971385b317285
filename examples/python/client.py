"""Ask the node: python client.py [HOST:PORT]."""

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> None:
    """Send two texts and compare."""
    text = np.array([["many small boats"], ["one flag"]], dtype=object)
    given = triton.InferInput("text", text.shape, "BYTES")
    given.set_data_from_numpy(text)
    with triton.InferenceServerClient(address) as client:
        words = client.infer("word_count", [given]).as_numpy("words")
    print(words)
    assert words.tolist() == [[3], [2]]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
