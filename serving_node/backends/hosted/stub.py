"""The worker process in which a backend is hosted. Run by the node, in the node's own Python environment."""

from __future__ import annotations

import ctypes
import signal
import socket
import sys
from pathlib import Path

# The folder of this file must not hide modules of others; the node's package is found without being installed.
sys.path[0] = str(Path(__file__).resolve().parents[3])

from serving_node.backends.python.worker import flotilla_wire  # noqa: E402

sys.modules["flotilla_wire"] = flotilla_wire  # as the modules beside it know it
from serving_node.backends.hosted.door import Door  # noqa: E402

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Obey the node until it says that it is enough, or is gone."""
    # when the node's thread that started this process ends, so does it
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        # the node says when it is over; not SIG_IGN, which processes of the model would inherit
        signal.signal(number, lambda *_: None)
    data, control = (socket.socket(fileno=int(text)) for text in sys.argv[1:3])
    for end in (data, control):
        end.set_inheritable(False)
    Door(data, control).serve()


if __name__ == "__main__":
    main()
