"""The process of one instance of a Python model. Run by the node; needs numpy and the standard library only.

The main thread receives batches, runs the model and answers. A second thread listens to what the node says meanwhile:
blocks that it freed, answers to the model's own requests, questions about readiness (which a third thread answers), and
the end of the connection, at which the process ends too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

# The folder of this file holds what models import; for them it comes last.
_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [entry for entry in sys.path if str(Path(entry).resolve()) != _HERE]
# The fourth argument is a folder with some of these modules as machine code, for interpreters of the node's kind.
_FOR_US = [*filter(None, sys.argv[4:5]), _HERE]
sys.path[:0] = _FOR_US
try:
    import numpy as np  # noqa: F401
except ImportError as missing:
    sys.stderr.write(f"{missing}\n")
    sys.exit(90)  # flotilla_wire.NO_NUMPY, which cannot be imported without it
import flotilla_wire as wire  # type: ignore[import-not-found]  # noqa: E402
from flotilla_calls import Calls  # type: ignore[import-not-found]  # noqa: E402
from flotilla_channel import Channel  # type: ignore[import-not-found]  # noqa: E402
from flotilla_model import (  # type: ignore[import-not-found]  # noqa: E402
    Model,
    completed_config,
    failure_text,
)

for _entry in _FOR_US:
    sys.path.remove(_entry)

_PR_SET_PDEATHSIG = 1


def die_with_the_node() -> None:
    """Ask the kernel to end this process when the node's thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def listen(channel: Channel, calls: Calls, probes: SimpleQueue[int]) -> None:
    """Read what the node says while batches run. On a thread of its own; ends the process with the connection.

    Nothing of the model's runs here: whoever waits for an answer must not wait for that too.
    """
    buffer = bytearray(wire.LARGEST_DATAGRAM + 4096)
    while True:
        try:
            message = channel.receive_control(buffer)
        except OSError:
            message = None
        if message is None:
            os._exit(1)
        kind, fields, payload, block = message
        if kind == wire.ANSWER:
            calls.deliver(fields, payload, block)
        elif kind == wire.PROBE:
            probes.put(fields[0])
        elif kind == wire.HURRY:
            channel.hurry()
        del message, payload, block  # or the memory of an answer would stay until the next one


def probe(channel: Channel, model: Model, probes: SimpleQueue[int]) -> None:
    """Say whether the model is ready whenever the node asks. On a thread of its own."""
    while True:
        number = probes.get()
        ready, reason = model.is_ready()
        channel.send(wire.PROBED, [number, ready, reason])


def start(channel: Channel, flags: mmap.mmap, order: dict[str, Any]) -> Model | None:
    """Import and initialise the model and say how that went; None when it failed."""
    calls = Calls(channel, order["instance"], decoupled=order["decoupled"])
    probes: SimpleQueue[int] = SimpleQueue()
    threading.Thread(target=listen, args=(channel, calls, probes), name="node", daemon=True).start()
    try:
        model = Model(channel, flags, order, calls)
    except BaseException as error:
        channel.send(wire.STARTED, [failure_text(error), None])
        return None
    calls.open()
    says_ready = not model.has_probe or model.is_ready()[0]
    if model.has_probe:
        threading.Thread(target=probe, args=(channel, model, probes), name="readiness", daemon=True).start()
    channel.poll_for(order.get("busy_poll_ns", 0))
    channel.send(wire.STARTED, [None, {"is_ready": model.has_probe, "says_ready": says_ready}])
    return model


def complete(channel: Channel, order: dict[str, Any]) -> None:
    """Run the model's auto_complete_config."""
    try:
        text = completed_config(order)
    except BaseException as error:
        channel.send(wire.COMPLETED, [failure_text(error), None])
    else:
        channel.send(wire.COMPLETED, [None, text])


def main() -> None:
    """Obey the node until it says that it is enough, or is gone."""
    die_with_the_node()
    for number in (signal.SIGINT, signal.SIGTERM):
        # the node says when it is over; not SIG_IGN, which processes of the model would inherit
        signal.signal(number, lambda *_: None)
    data, control = (socket.socket(fileno=int(text)) for text in sys.argv[1:3])
    for end in (data, control):
        end.set_inheritable(False)
    flags_fd = int(sys.argv[3])
    flags = mmap.mmap(flags_fd, wire.FLAGS_BYTES)
    os.close(flags_fd)
    channel = Channel(data, control)
    channel.send(wire.LOG, [3, "the worker is there", "", 0])
    model: Model | None = None
    while True:
        message = channel.receive()
        if message is None:
            break
        kind, fields = message[:2]
        if kind == wire.EXECUTE and model is not None:
            channel.is_one_by_one = fields[2] == 1
            model.run_all(message)
        elif kind == wire.START:
            model = start(channel, flags, fields[0])
        elif kind == wire.COMPLETE:
            complete(channel, fields[0])
        elif kind == wire.FINALIZE:
            if model is not None:
                model.finalize()
            channel.send(wire.FINALIZED, [])
            break
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
