"""A node that lives for one check: started in the sandbox, asked a few things, gone with it."""

from workers.scratch.environments import PackagesMissing, environments_collect
from workers.scratch.report import (
    Answer,
    Difference,
    OutputFacts,
    Profile,
    Report,
    ScratchFailed,
    Stream,
    StreamTimes,
    is_missing,
)
from workers.scratch.trial import MODEL, Part, Request, Round, Trial, remove_left_behind, run_trial

__all__ = [
    "MODEL",
    "Answer",
    "Difference",
    "OutputFacts",
    "PackagesMissing",
    "Part",
    "Profile",
    "Report",
    "Request",
    "Round",
    "ScratchFailed",
    "Stream",
    "StreamTimes",
    "Trial",
    "environments_collect",
    "is_missing",
    "remove_left_behind",
    "run_trial",
]
