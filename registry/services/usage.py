"""The ledger of what projects use: many rows made one, and compared with what is there."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import connection

_log = logging.getLogger(__name__)
# How many turns of the sweep (five minutes each) make a day.
_TURN_SECONDS, _TURNS_A_DAY = 300, 288

# One statement, so that whoever reads meanwhile sees the many or the one. Rows that another sweep holds wait for it.
_FOLD = """
WITH many AS (
    SELECT project_id FROM registry_projectuse GROUP BY project_id HAVING count(*) > 1
), chosen AS (
    SELECT id FROM registry_projectuse WHERE project_id IN (SELECT project_id FROM many)
    ORDER BY id FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM registry_projectuse WHERE id IN (SELECT id FROM chosen) RETURNING project_id, bytes, versions
)
INSERT INTO registry_projectuse (project_id, bytes, versions)
SELECT project_id, sum(bytes), sum(versions) FROM gone GROUP BY project_id
"""

# One statement again: what is there and what the ledger says of it are read at the same moment.
_CORRECT = """
WITH files AS (
    SELECT model.project_id, sum(blob.size) AS bytes
    FROM registry_versionfile file
    JOIN registry_blob blob ON blob.id = file.blob_id
    JOIN registry_modelversion version ON version.id = file.version_id
    JOIN registry_registeredmodel model ON model.id = version.model_id
    GROUP BY model.project_id
), versions AS (
    SELECT model.project_id, count(*) AS versions
    FROM registry_modelversion version
    JOIN registry_registeredmodel model ON model.id = version.model_id
    WHERE version.state NOT IN ('rejected', 'abandoned')
    GROUP BY model.project_id
), told AS (
    SELECT project_id, sum(bytes) AS bytes, sum(versions) AS versions FROM registry_projectuse GROUP BY project_id
), wrong AS (
    SELECT project.id,
        coalesce(files.bytes, 0) - coalesce(told.bytes, 0) AS bytes,
        coalesce(versions.versions, 0) - coalesce(told.versions, 0) AS versions
    FROM registry_project project
    LEFT JOIN files ON files.project_id = project.id
    LEFT JOIN versions ON versions.project_id = project.id
    LEFT JOIN told ON told.project_id = project.id
)
INSERT INTO registry_projectuse (project_id, bytes, versions)
SELECT id, bytes, versions FROM wrong WHERE bytes <> 0 OR versions <> 0
RETURNING project_id, bytes, versions
"""


def use_fold() -> None:
    """Make one row of the many of each project."""
    with connection.cursor() as cursor:
        cursor.execute(_FOLD)


def use_correct() -> int:
    """Compare the ledger with what is there, correct it, and return for how many projects it was wrong.

    The triggers keep it right; a restore of data with triggers switched off does not.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CORRECT)
        wrong = cursor.fetchall()
    for project_id, amount, versions in wrong:
        _log.warning("usage.corrected project=%s bytes=%+d versions=%+d", project_id, amount, versions)
    return len(wrong)


def use_sweep(now: datetime) -> None:
    """Fold; once a day correct first."""
    if int(now.timestamp() // _TURN_SECONDS) % _TURNS_A_DAY == 0:
        use_correct()
    use_fold()
