from __future__ import annotations

import platform

from serving_node.wire.memory import keep_large_buffers


def test_glibc_obeys_and_others_are_left_alone() -> None:
    assert keep_large_buffers() == (platform.libc_ver()[0] == "glibc")
    assert keep_large_buffers() == keep_large_buffers()
