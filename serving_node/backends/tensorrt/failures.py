"""Why an engine cannot be opened, as one sentence for a person. Pure.

The first bytes of a plan hold a mark and the version of the TensorRT that wrote it (source: what ``trtexec
--getPlanVersionOnly`` prints), so that most mismatches are told without asking TensorRT.
"""

from __future__ import annotations

import re
import struct

HEAD_BYTES = 28
_MARK = b"ftrt"
_DEVICE = re.compile(r"incompatible device.*?compute (\d+\.\d+) got compute (\d+\.\d+)", re.S | re.I)
_HOST_CODE = re.compile(r"host code|lean runtime|version compatible|engineHostCodeAllowed", re.I)
_VERSION = re.compile(r"version", re.I)


def plan_version(head: bytes) -> tuple[int, int, int, int] | None:
    """Return the version of the TensorRT that wrote a plan, None when its first bytes do not say."""
    if len(head) < HEAD_BYTES or not head.startswith(_MARK) or struct.unpack_from("<I", head, 4) != (0,):
        return None
    return head[24], head[25], head[26], head[27]


def plan_sentence(text: str, head: bytes, filename: str, runtime_version: str, *, allows_host_code: bool) -> str:
    """Return why TensorRT did not open a plan. ``text``: the last error that it logged."""
    runtime = f"TensorRT {runtime_version}"
    if not head.startswith(_MARK):
        return f"'{filename}' is not a TensorRT engine (truncated or another format)"
    written = plan_version(head)
    version = ".".join(str(part) for part in written) if written else ""
    if found := _DEVICE.search(text):
        here, there = found.groups()
        return (
            f"'{filename}' was built for GPUs of compute capability {there} and this one has {here}: build it again on"
            " this node"
        )
    if not allows_host_code and _HOST_CODE.search(text):
        return (
            f"'{filename}' is a version-compatible engine, which brings a runtime of its own: start the node with"
            " --backend-config=tensorrt,version-compatible=true to allow it"
        )
    is_other = bool(written) and not runtime_version.startswith(f"{version.rsplit('.', 1)[0]}")
    if is_other or (_VERSION.search(text) and not version):
        by = f"TensorRT {version}" if version else "another version of TensorRT"
        return (
            f"'{filename}' was built by {by} and this node runs {runtime}: build it again on this node, or as a"
            " version-compatible engine"
        )
    return f"{runtime} cannot open '{filename}': {_clean(text)}"


def _clean(text: str) -> str:
    """Return the first line without TensorRT's own prefixes."""
    line = text.strip().split("\n", 1)[0]
    line = re.sub(r"^(?:\[\w+\]\s*)*(?:\d+: )?(?:I\w+::\w+: )?(?:Error Code \d+: )?", "", line)
    return line.strip().rstrip(".") or "no reason given"
