"""The exit statuses of every command, in one place: CI compares them."""

from __future__ import annotations

from enum import IntEnum

from flotilla.sdk import ApiError


class Exit(IntEnum):
    """``meaning`` is what the documentation prints."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Exit:
        """Make a member with its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = 0, "Done; what was waited for succeeded."
    FAILED = 1, "Refused or failed; the sentence says why."
    USAGE = 2, "The command line itself is wrong."
    DIFFERS = 3, "There are differences (diff), or converted answers differ too much (convert)."
    CHECKS_FAILED = 4, "A check of the version failed."
    REJECTED = 5, "The approval was rejected, or changes were asked for."
    NOT_APPROVED = 6, "The approval request was voided or withdrawn, or it expired."
    ROLLED_BACK = 7, "The rollout failed, was rolled back, or another change took its place."
    TIMED_OUT = 8, "Not finished within --timeout; on the server it goes on."
    UNREACHABLE = 9, "The console cannot be reached."
    NOT_ALLOWED = 10, "Not signed in, the token ran out, or the account may not do this."
    CONFLICT = 11, "Somebody else changed it in the meantime; look again."
    INTERRUPTED = 130, "Ended by Ctrl-C; on the server it goes on."


def exit_code_of(error: ApiError) -> Exit:
    """Return the status for a refusal."""
    if error.status == 0:
        return Exit.UNREACHABLE
    if error.status in (401, 403):
        return Exit.NOT_ALLOWED
    if error.status in (409, 412):
        return Exit.CONFLICT
    return Exit.FAILED
