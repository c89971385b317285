"""Makes the environments that some models ask for, ahead of the node that will serve them.

Run as ``python -m serving_node.backends.python.prepare``. Standard input is JSON: ``{"folder", "index", "seconds",
"files": [requirements]}``, with what ``environment-folder`` and ``package-index`` of the Python backend say.
The last line of output is JSON: ``{"environments": [folder], "reason", "is_damaged", "log"}``. The reason is empty when
all is well, and where a file is not as it must be, which the node will say itself. What was made is for all users of
the machine to read.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from serving_node.backends.python.environment_store import BuildError, EnvironmentStore, PackageIndex
from serving_node.backends.python.requirements import RequirementsError, read_requirements

_LOG_TAIL = 16384
_DAMAGED = "DO NOT MATCH THE HASHES"


def prepared(order: dict[str, Any]) -> dict[str, Any]:
    """Return what the module says; blocks while packages are fetched."""
    store = EnvironmentStore(Path(order["folder"]), PackageIndex(order["index"]), float(order["seconds"]))
    answer: dict[str, Any] = {"environments": [], "reason": "", "is_damaged": False, "log": ""}
    for file in order["files"]:
        try:
            requirements = read_requirements(Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, RequirementsError):
            continue
        try:
            answer["environments"].append(str(store.find_or_build(requirements)))
        except BuildError as error:
            log = _tail(store.log_of(store.key(requirements)))
            answer |= {"reason": str(error), "is_damaged": _DAMAGED in log, "log": log}
            break
    return answer


def _tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-_LOG_TAIL:]
    except OSError:
        return ""


if __name__ == "__main__":
    os.umask(0o022)
    print(json.dumps(prepared(json.load(sys.stdin))))
