"""A node that lives for one check: started in the sandbox, asked a few things, gone with it."""

from workers.scratch.report import Answer, OutputFacts, Profile, Report, ScratchFailed, is_missing
from workers.scratch.trial import MODEL, Part, Request, Trial, remove_left_behind, run_trial

__all__ = [
    "MODEL",
    "Answer",
    "OutputFacts",
    "Part",
    "Profile",
    "Report",
    "Request",
    "ScratchFailed",
    "Trial",
    "is_missing",
    "remove_left_behind",
    "run_trial",
]
