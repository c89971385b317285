"""What the repository remembers of a model, and how a version's load failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.repository.model_folder import FolderTimes
from serving_node.repository.polled import PolledModel

# How Triton writes a code in front of a message that it keeps.
_CODE_WORDS = {
    ErrorCode.UNKNOWN: "Unknown",
    ErrorCode.INTERNAL: "Internal",
    ErrorCode.NOT_FOUND: "Not found",
    ErrorCode.INVALID_ARG: "Invalid argument",
    ErrorCode.UNAVAILABLE: "Unavailable",
    ErrorCode.UNSUPPORTED: "Unsupported",
    ErrorCode.ALREADY_EXISTS: "Already exists",
    ErrorCode.CANCELLED: "Cancelled",
}


@dataclass(slots=True)
class KnownModel:
    """A model that was asked for: the times of its folder at the last good load, and what serves from it.

    ``fixed_parts`` are the configs of the serving versions without what can change in place. ``temporary`` holds the
    uploaded files that the serving versions were built from. ``failure`` is why nothing serves, if nothing does.
    ``is_own``: somebody asked for this model, and not only for an ensemble that uses it. ``ensemble`` is kept of an
    ensemble, which is loaded again whenever a model that it uses changes.
    """

    times: FolderTimes = field(default_factory=FolderTimes)
    fixed_parts: dict[int, bytes] = field(default_factory=dict)
    temporary: Path | None = None
    failure: str = ""
    is_own: bool = False
    ensemble: PolledModel | None = None


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a version was not loaded, and the state that it is in now."""

    state: ModelState
    reason: str


def with_code(error: InferenceError) -> str:
    """Return the text of an error as Triton keeps it for a version."""
    return f"{_CODE_WORDS[error.code]}: {error.message}"
