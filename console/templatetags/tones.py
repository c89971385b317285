"""One table of every status word: what it is called, which tone and which icon it has. Colour never stands alone."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Tone:
    """How a status looks: tone is green, amber, red, blue or grey; ``icon`` is a name in static/icons.svg."""

    label: str | Promise
    tone: str
    icon: str
    spins: bool = False


def _busy(label: str | Promise) -> Tone:
    return Tone(label, "blue", "loader-circle", spins=True)


TONES: dict[str, Tone] = {
    # versions
    "uploading": _busy(_("Uploading")),
    "validating": _busy(_("Validating")),
    "ready": Tone(_("Ready"), "green", "circle-check"),
    "rejected": Tone(_("Rejected"), "red", "circle-x"),
    "archived": Tone(_("Archived"), "grey", "archive"),
    "quarantined": Tone(_("Quarantined"), "red", "octagon-alert"),
    "abandoned": Tone(_("Abandoned"), "grey", "trash-2"),
    # checks
    "pass": Tone(_("Pass"), "green", "circle-check"),
    "warn": Tone(_("Warning"), "amber", "triangle-alert"),
    "fail": Tone(_("Fail"), "red", "circle-x"),
    "error": Tone(_("Error"), "red", "octagon-alert"),
    # signatures
    "verified": Tone(_("Verified"), "green", "shield-check"),
    "unsigned": Tone(_("Not signed"), "amber", "triangle-alert"),
    "unverified": Tone(_("Not verified"), "red", "circle-x"),
    # what apply sets own
    "touched": Tone(_("Changed since"), "amber", "pencil"),
    "gone": Tone(_("Gone"), "red", "circle-x"),
    # sync and health
    "synced": Tone(_("Synced"), "green", "circle-check"),
    "progressing": _busy(_("Progressing")),
    "out_of_sync": Tone(_("Out of sync"), "amber", "triangle-alert"),
    "healthy": Tone(_("Healthy"), "green", "activity"),
    "degraded": Tone(_("Degraded"), "red", "octagon-alert"),
    "suspended": Tone(_("Suspended"), "grey", "circle-pause"),
    "missing": Tone(_("Missing"), "grey", "circle-dashed"),
    "unknown": Tone(_("Unknown"), "grey", "circle-help"),
    # units on nodes
    "pending": Tone(_("Pending"), "grey", "clock"),
    "absent": Tone(_("Absent"), "grey", "circle-dashed"),
    "fetching": Tone(_("Fetching"), "blue", "download"),
    "verifying": _busy(_("Verifying")),
    "staged": Tone(_("Staged"), "blue", "package-check"),
    "loading": _busy(_("Loading")),
    "warming": _busy(_("Warming up")),
    "unloading": Tone(_("Unloading"), "grey", "loader-circle", spins=True),
    "failed": Tone(_("Failed"), "red", "circle-x"),
    # stages of changes
    "done": Tone(_("Done"), "green", "circle-check"),
    "current": _busy(_("Now")),
    "ahead": Tone(_("To come"), "grey", "circle"),
    "skipped": Tone(_("Skipped"), "grey", "ban"),
    "approval": Tone(_("Approval"), "grey", "shield"),
    "start": Tone(_("Its time"), "grey", "alarm-clock"),
    "load": Tone(_("Load on nodes"), "grey", "download"),
    "verify": Tone(_("Take the routes"), "grey", "route"),
    "back": Tone(_("Go back"), "grey", "undo-2"),
    # rollouts, approvals, operations
    "paused": Tone(_("Paused"), "amber", "circle-pause"),
    "succeeded": Tone(_("Succeeded"), "green", "circle-check"),
    "aborting": Tone(_("Rolling back"), "amber", "undo-2"),
    "rolled_back": Tone(_("Rolled back"), "amber", "undo-2"),
    "superseded": Tone(_("Superseded"), "grey", "history"),
    "open": Tone(_("Waiting for review"), "blue", "inbox"),
    "approved": Tone(_("Approved"), "green", "shield-check"),
    "withdrawn": Tone(_("Withdrawn"), "grey", "undo-2"),
    "voided": Tone(_("Void"), "amber", "ban"),
    "applied": Tone(_("Applied"), "green", "circle-check"),
    "expired": Tone(_("Expired"), "grey", "clock"),
    "running": _busy(_("Running")),
    "cancelled": Tone(_("Cancelled"), "grey", "ban"),
    "approve": Tone(_("Approved"), "green", "circle-check"),
    "request_changes": Tone(_("Changes requested"), "amber", "pencil"),
    "reject": Tone(_("Rejected"), "red", "circle-x"),
    "comment": Tone(_("Comment"), "grey", "file-text"),
    "waiting": Tone(_("Waits for its time"), "blue", "alarm-clock"),
    "bypassed": Tone(_("Rules bypassed"), "red", "shield"),
    # rules of environments
    "met": Tone(_("Met"), "green", "circle-check"),
    "unmet": Tone(_("Not met"), "amber", "triangle-alert"),
    "waits": Tone(_("Waits"), "blue", "alarm-clock"),
    # nodes
    "joining": _busy(_("Joining")),
    "draining": Tone(_("Draining"), "amber", "loader-circle", spins=True),
    "drained": Tone(_("Drained"), "grey", "circle-pause"),
    "retired": Tone(_("Retired"), "grey", "power"),
    "reachable": Tone(_("Reachable"), "green", "radio"),
    "unreachable": Tone(_("Unreachable"), "red", "server-off"),
    "cordoned": Tone(_("Cordoned"), "amber", "ban"),
    # kinds of operations
    "validate_version": Tone(_("Check a version"), "grey", "circle-check"),
    "fetch_version": Tone(_("Fetch from an address"), "grey", "download"),
    "bench_model": Tone(_("Measure a version"), "grey", "gauge"),
    # routes
    "live": Tone(_("Live"), "green", "radio"),
    "canary": Tone(_("Canary"), "amber", "flask-conical"),
    "shadow": Tone(_("Shadow"), "blue", "layers"),
    "held": Tone(_("Held"), "grey", "circle-pause"),
    # answers beside each other
    "same": Tone(_("Same"), "green", "circle-check"),
    "differs": Tone(_("Differs"), "amber", "triangle-alert"),
    # deliveries and webhooks
    "delivered": Tone(_("Delivered"), "green", "circle-check"),
    "off": Tone(_("Off"), "grey", "circle-pause"),
    # tokens and accounts
    "active": Tone(_("Active"), "green", "circle-check"),
    "revoked": Tone(_("Revoked"), "grey", "ban"),
    "blocked": Tone(_("Blocked"), "grey", "ban"),
}


def tone_of(value: object) -> Tone:
    """Return how a status looks; an unknown one is grey and shown as it is."""
    word = str(value or "unknown")
    return TONES.get(word) or Tone(word.replace("_", " ").capitalize(), "grey", "circle")
