"""The history refuses TRUNCATE, by triggers; tests that empty a database say so by this."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pgtrigger

_GUARDS = ("Transition:transition_no_truncate", "AuditEvent:audit_no_truncate", "AuditSeal:seal_no_truncate")


def emptying() -> AbstractContextManager[None]:
    """Let a flush empty the history, too."""
    return pgtrigger.ignore(*(f"registry.{guard}" for guard in _GUARDS))
