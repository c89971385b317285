"""What lay in the database before a migration goes on behind it."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from registry.models import Upload
from registry.services import uploads
from registry.storage import artifact_store
from tests.registry.services.test_uploads import CONTENT, DIGEST, begin, receive


def migrate(*targets: tuple[str, str]) -> Any:
    """Bring the schema to these migrations, until the test is rolled back, and return the models as they were there."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # Tables with checks that are still due cannot be altered.
    return MigrationExecutor(connection).migrate(list(targets)).apps


def test_upload_that_was_under_way_is_kept(world: Any) -> None:
    """It had been promised a BLAKE3, which nobody computes any more; another one had received all its bytes."""
    half, whole = begin(world), receive(begin(world))
    uploads.upload_advance(upload_id=half.pk, from_offset=0, to_offset=10)
    latest = [name for name in MigrationExecutor(connection).loader.graph.leaf_nodes() if name[0] == "registry"]
    before = migrate(("registry", "0033_history_no_truncate"))
    before.get_model("registry", "Upload").objects.update(expected_blake3="0" * 64)
    migrate(*latest)
    assert set(Upload.objects.values_list("expected_xxh3", flat=True)) == {""}
    uploads.staging_path(half.pk).write_bytes(CONTENT)
    uploads.upload_received(upload_id=half.pk, from_offset=10)
    assert uploads.upload_store(upload_id=half.pk) == uploads.upload_store(upload_id=whole.pk)
    assert b"".join(artifact_store().open_range(DIGEST)) == CONTENT
