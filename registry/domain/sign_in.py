"""How long a session lives and who needs a second factor. Pure: facts and time are arguments."""

from __future__ import annotations

from datetime import datetime, timedelta

MFA_POLICIES = ("off", "admins", "all")


def session_is_over(*, began: datetime, seen: datetime, now: datetime, longest: timedelta, idle: timedelta) -> bool:
    """Say whether a session has lasted too long, or was not used for too long."""
    return now - began >= longest or now - seen >= idle


def needs_second_factor(policy: str, site_role: str) -> bool:
    """Say whether an account with that site role may use a password only together with something else."""
    return policy == "all" or (policy == "admins" and site_role == "admin")
