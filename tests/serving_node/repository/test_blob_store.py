from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from serving_node.repository.blob_store import BlobError, BlobStore


def put(store: BlobStore, content: bytes, *, used_at: float | None = None) -> str:
    digest = hashlib.sha256(content).hexdigest()
    store.partial_path(digest).write_bytes(content)
    store.commit(digest, len(content))
    if used_at is not None:
        os.utime(store.path(digest), (used_at, used_at))
        store._entries[digest].last_used = used_at
    return digest


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", quota_bytes=100)


def test_commit_names_the_blob_by_its_content(store: BlobStore) -> None:
    digest = put(store, b"weights")
    assert store.has(digest)
    assert store.path(digest).read_bytes() == b"weights"
    assert store.path(digest) == store.root / digest[:2] / digest
    assert store.path(digest).stat().st_mode & 0o222 == 0, "a blob is never written to"


@pytest.mark.parametrize(("content", "size"), [(b"other", 5), (b"weight", 7)])
def test_commit_wrong_content_is_refused_and_deleted(store: BlobStore, content: bytes, size: int) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()
    store.partial_path(digest).write_bytes(content)
    with pytest.raises(BlobError) as caught:
        store.commit(digest, size)
    assert caught.value.code == "digest_mismatch"
    assert not store.has(digest)
    assert not store.partial_path(digest).exists()


def test_path_refuses_what_is_not_a_digest(store: BlobStore) -> None:
    with pytest.raises(BlobError):
        store.path("../../etc/passwd")


def test_reserve_evicts_least_recently_used_and_never_what_is_in_use(store: BlobStore) -> None:
    oldest = put(store, b"a" * 40, used_at=1000)
    middle = put(store, b"b" * 40, used_at=2000)
    newest = put(store, b"c" * 20, used_at=3000)
    store.pin({oldest})
    store.reserve("0" * 64, 30)
    assert store.has(oldest)
    assert not store.has(middle)
    assert not store.path(middle).exists()
    assert store.has(newest)


def test_reserve_without_room_evicts_nothing(store: BlobStore) -> None:
    used = put(store, b"a" * 60)
    free = put(store, b"b" * 20)
    store.pin({used})
    with pytest.raises(BlobError, match="quota is 100 bytes") as caught:
        store.reserve("0" * 64, 60)
    assert caught.value.code == "disk_quota"
    assert store.has(free)


def test_reserve_counts_downloads_that_are_under_way(store: BlobStore) -> None:
    store.reserve("0" * 64, 60)
    store.reserve("0" * 64, 60)
    with pytest.raises(BlobError):
        store.reserve("1" * 64, 60)
    store.release("0" * 64)
    store.reserve("1" * 64, 60)


def test_touch_order_survives_a_restart(store: BlobStore) -> None:
    first = put(store, b"a" * 40, used_at=1000)
    second = put(store, b"b" * 40, used_at=2000)
    store.touch(first)
    again = BlobStore(store.root, quota_bytes=100)
    assert [blob.sha256 for blob in again.list()] == [second, first]
    again.reserve("0" * 64, 40)
    assert again.has(first)
    assert not again.has(second)


def test_verify_damaged_blob_is_dropped(store: BlobStore) -> None:
    digest = put(store, b"weights")
    assert store.verify(digest)
    store.path(digest).chmod(0o600)
    store.path(digest).write_bytes(b"weightz")
    assert not store.verify(digest)
    assert not store.has(digest)


def test_delete_refuses_what_is_in_use(store: BlobStore) -> None:
    digest = put(store, b"weights")
    store.pin({digest})
    with pytest.raises(BlobError) as caught:
        store.delete(digest)
    assert caught.value.code == "in_use"
    store.pin(())
    assert store.delete(digest)
    assert not store.delete(digest)


def test_drop_partials_keeps_wanted_downloads(store: BlobStore) -> None:
    wanted, other = "a" * 64, "b" * 64
    for digest in (wanted, other):
        store.partial_path(digest).write_bytes(b"half")
    assert store.drop_partials({wanted}) == 1
    assert store.partial_path(wanted).exists()
    assert not BlobStore(store.root).has(wanted), "half a blob is no blob"
