"""What is true of the rows of Transition of one object, whatever happened at once."""

from __future__ import annotations

import uuid

from registry.domain.states import Table
from registry.models import Transition


def assert_one_path(table: Table, object_id: uuid.UUID, first: str, last: str) -> None:
    """Hold the moves of an object against its table: each is allowed, and all of them make one path.

    Of two moves that both left one state, one would be left over. Rows of one millisecond have no order among them.
    """
    rows = Transition.objects.filter(object_id=object_id)
    moves = [(row.from_state, row.to_state) for row in rows]
    assert all(to in table[before] for before, to in moves), moves
    for state in table:
        left = sum(before == state for before, _to in moves)
        came = sum(to == state for _before, to in moves)
        assert left - came == (state == first) - (state == last), (state, moves)
