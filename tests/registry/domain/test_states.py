from __future__ import annotations

import itertools

import pytest

from registry.domain import states
from registry.errors import InvalidTransition


@pytest.mark.parametrize("table", states.TABLES.values(), ids=[name for name, _field in states.TABLES])
def test_table_names_only_its_own_states(table: states.Table) -> None:
    for targets in table.values():
        assert targets <= table.keys()


@pytest.mark.parametrize("table", states.TABLES.values(), ids=[name for name, _field in states.TABLES])
def test_moves_outside_the_table_are_refused(table: states.Table) -> None:
    for before, to in itertools.product(table, table):
        if to in table[before]:
            states.require_move(table, before, to, noun="It")
        else:
            with pytest.raises(InvalidTransition, match=f"It is {before}"):
                states.require_move(table, before, to, noun="It")


def test_a_rejected_version_stays_rejected() -> None:
    assert states.is_final(states.VERSION, "rejected")
    assert states.sources(states.VERSION, "ready") == {"validating", "archived", "quarantined"}


def test_choices_of_the_models_equal_the_tables() -> None:
    from registry import models

    assert set(models.VersionState.values) == set(states.VERSION)
    assert set(models.UploadState.values) == set(states.UPLOAD)
    assert set(models.ApprovalState.values) == set(states.APPROVAL)
    assert set(models.RolloutPhase.values) == set(states.ROLLOUT)
    assert set(models.NodeState.values) == set(states.NODE)
    assert set(models.OperationState.values) == set(states.OPERATION)
