"""The worker that builds engines, with the double in place of TensorRT. For files of a special name it misbehaves."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from serving_node.backends.tensorrt.building.worker import main
from tests.serving_node.backends.tensorrt import fake_tensorrt


class MisbehavingBuilder(fake_tensorrt.Builder):
    def build_serialized_network(self, network: Any, config: Any) -> Any:
        name = network.model.graph.name
        if name == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "hangs":
            config.progress_monitor.phase_start("Timing", None, 1000)
            step = 0
            while config.progress_monitor.step_complete("Timing", min(step, 900)):
                step += 1
                time.sleep(0.001)
            return None
        return super().build_serialized_network(network, config)


if __name__ == "__main__":
    fake_tensorrt.Builder = MisbehavingBuilder
    main(fake_tensorrt)
