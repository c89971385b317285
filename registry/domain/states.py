"""Every table of allowed moves. Nothing outside this file says which state may follow which.

A table maps a state to the states that may follow it. ``registry.services.transition.move`` turns a move into a
conditional UPDATE, so that two callers can never both make it.
"""

from __future__ import annotations

from collections.abc import Mapping

from registry.domain.texts import gettext as _
from registry.errors import InvalidTransition

Table = Mapping[str, frozenset[str]]


def _table(**moves: str) -> Table:
    return {state: frozenset(targets.split()) for state, targets in moves.items()}


VERSION = _table(
    uploading="validating abandoned",
    validating="ready rejected abandoned",
    ready="archived quarantined",
    archived="ready quarantined",
    quarantined="ready",
    rejected="",
    abandoned="",
)
MODEL = _table(active="archived", archived="active")
UPLOAD = _table(
    receiving="received failed terminated",
    received="stored failed terminated",
    stored="",
    failed="",
    terminated="",
)
APPROVAL = _table(
    open="approved rejected withdrawn voided expired",
    approved="applied expired voided withdrawn rejected",
    rejected="",
    withdrawn="",
    voided="",
    applied="",
    expired="",
)
ROLLOUT = _table(
    pending="progressing superseded",
    progressing="paused verifying aborting superseded",
    paused="progressing aborting superseded",
    verifying="succeeded aborting superseded",
    aborting="rolled_back failed superseded",
    succeeded="",
    rolled_back="",
    failed="",
    superseded="",
)
NODE = _table(
    joining="ready retired",
    ready="draining retired",
    draining="drained retired",
    drained="ready retired",
    retired="",
)
OPERATION = _table(
    pending="running cancelled failed",
    running="succeeded failed cancelled pending",
    succeeded="",
    failed="",
    cancelled="",
)
DELIVERY = _table(
    pending="delivered failed cancelled",
    delivered="",
    failed="",
    cancelled="",
)
LOGIN_REQUEST = _table(
    waiting="granted denied",
    granted="claimed",
    denied="",
    claimed="",
)

# (model name, column) -> table
TABLES: Mapping[tuple[str, str], Table] = {
    ("registeredmodel", "state"): MODEL,
    ("modelversion", "state"): VERSION,
    ("upload", "state"): UPLOAD,
    ("approvalrequest", "state"): APPROVAL,
    ("rollout", "phase"): ROLLOUT,
    ("servingnode", "state"): NODE,
    ("operation", "state"): OPERATION,
    ("webhookdelivery", "state"): DELIVERY,
    ("loginrequest", "state"): LOGIN_REQUEST,
}


def sources(table: Table, to: str) -> frozenset[str]:
    """Return the states from which ``to`` may be reached in one move."""
    return frozenset(state for state, targets in table.items() if to in targets)


def is_final(table: Table, state: str) -> bool:
    """Say whether nothing follows ``state``."""
    return not table[state]


def require_move(table: Table, before: str, to: str, *, noun: str) -> None:
    """Do nothing when the move is allowed.

    Raises:
        InvalidTransition: it is not; the message names both states.
    """
    if to not in table.get(before, frozenset()):
        raise InvalidTransition(
            _("%(what)s is %(before)s; it cannot become %(to)s.") % {"what": noun, "before": before, "to": to}
        )
