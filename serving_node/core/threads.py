"""How many threads one execution of an engine gets."""

from __future__ import annotations

import os

# from here on a core is left to the event loop without being missed
_MANY_CORES = 5


def default_threads(instances: int) -> int:
    """Return how many threads an execution uses so that all instances together do not fight over the cores.

    On small machines one core is left to the event loop: measured on two cores, a second thread made no model faster.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usable = cores if cores >= _MANY_CORES else cores - 1
    return max(1, usable // max(1, instances))
