"""Runs a command that nobody has approved where it reaches nothing and takes little: docs/reference/sandbox.md."""

from workers.sandbox.order import Command, Limits, Mount
from workers.sandbox.process import Ending, Outcome, SandboxUnavailable, run

__all__ = ["Command", "Ending", "Limits", "Mount", "Outcome", "SandboxUnavailable", "run"]
