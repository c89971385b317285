"""The ledger of what projects use: it says what is there whatever is done, in any order and by several at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from django.db import close_old_connections, connection
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from registry.errors import RegistryError
from registry.models import Blob, ModelVersion, ProjectUse, VersionFile
from registry.selectors.quotas import bytes_used, versions_used
from registry.services import models, versions
from registry.services.usage import use_correct, use_fold, use_sweep
from tests.console.conftest import Cast, make_cast

ACTS = ("create", "add", "submit", "reject", "abandon", "rearrange", "delete", "fold")


def blob(number: int) -> Blob:
    values = {"size": 10**number, "storage_key": f"{number}"}
    return Blob.objects.get_or_create(sha256=f"{number:064d}", defaults=values)[0]


def act(cast: Cast, name: str, number: int) -> None:
    """Do one thing to the oldest version for which it may be possible."""
    version = ModelVersion.objects.order_by("created_at")[number % 3 :].first()
    if name == "create" or version is None:
        cast.version(f"finch-{number % 2}")
    elif name == "add":
        versions.version_add_file(version=version, path=f"f{number}", blob=blob(number))
    elif name == "submit":
        versions.version_submit(version=version, actor=cast.actor("bob"))
    elif name == "reject":
        versions.version_reject(version=version, reason="no")
    elif name == "abandon":
        versions.version_abandon(version=version, actor=cast.actor("bob"))
    elif name == "rearrange":
        versions.version_rearrange(version=version, files={f"g{number}": blob(number), "h": blob(1)}, origin={})
    elif name == "delete":
        models.model_delete(model=version.model, actor=cast.actor("alice"))
    else:
        use_fold()


class LedgerTest(TestCase):
    cast: Cast

    @classmethod
    def setUpTestData(cls) -> None:
        cls.cast = make_cast()

    @settings(max_examples=10, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 5)), max_size=12))
    def test_it_says_what_is_there_after_anything(self, acts: list[tuple[str, int]]) -> None:
        cast = self.cast
        for name, number in acts:
            with suppress(RegistryError):
                act(cast, name, number)
        sizes = VersionFile.objects.filter(version__model__project=cast.project).values_list("blob__size", flat=True)
        assert bytes_used(cast.project) == sum(sizes)
        assert versions_used(cast.project) == ModelVersion.objects.exclude(state__in=["rejected", "abandoned"]).count()
        assert use_correct() == 0


@pytest.mark.django_db
def test_many_rows_become_one_and_a_wrong_one_is_corrected() -> None:
    cast = make_cast()
    for _number in range(3):
        cast.version()
    ProjectUse.objects.filter(pk=ProjectUse.objects.filter(project=cast.project).values("pk")[:1]).delete()
    assert versions_used(cast.project) == 2
    assert use_correct() == 1 and use_correct() == 0
    use_sweep(datetime(2026, 1, 1, 0, 7, tzinfo=UTC))
    assert ProjectUse.objects.get(project=cast.project).versions == 3
    ProjectUse.objects.all().delete()
    use_sweep(datetime(2026, 1, 1, 0, 7, tzinfo=UTC))
    assert versions_used(cast.project) == 0
    use_sweep(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=2))
    assert versions_used(cast.project) == 3


@pytest.mark.django_db(transaction=True)
def test_writers_and_sweeps_at_once_lose_nothing() -> None:
    cast = make_cast()
    made = [cast.version(f"finch-{number}") for number in range(3)]
    blobs = [blob(number) for number in range(3)]

    def write(version: ModelVersion) -> None:
        try:
            for number in range(10):
                versions.version_add_file(version=version, path=f"f{number}", blob=blobs[number % 3])
        finally:
            connection.close()

    def sweep(_turn: int) -> None:
        try:
            for _number in range(10):
                use_fold()
                assert use_correct() == 0
        finally:
            connection.close()

    close_old_connections()
    with ThreadPoolExecutor(5) as pool:
        for done in [*[pool.submit(write, version) for version in made], *[pool.submit(sweep, n) for n in range(2)]]:
            done.result(60)
    use_fold()
    assert ProjectUse.objects.get(project=cast.project).bytes == 3 * (4 + 30 + 300)
    assert use_correct() == 0
