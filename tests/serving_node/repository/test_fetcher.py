from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving_node.repository.blob_store import BlobStore
from serving_node.repository.fetcher import BlobFetcher, FetchError, FetchPolicy

from .conftest import BlobServer

POLICY = FetchPolicy(attempts=4, backoff_seconds=0.01, backoff_limit_seconds=0.02, stall_timeout_seconds=5)
CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def fetcher(store: BlobStore, blob_server: BlobServer) -> Iterator[BlobFetcher]:
    made = BlobFetcher(store, base_url=lambda: blob_server.url, token=lambda: "node-token", policy=POLICY)
    yield made
    made.close()


def fetch(fetcher: BlobFetcher, digest: str, size: int = len(CONTENT)) -> list[int]:
    progress: list[int] = []
    fetcher.fetch(digest, size, progress=progress.append, cancelled=threading.Event())
    return progress


def test_fetch_brings_a_verified_blob_and_reports_progress(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    progress = fetch(fetcher, digest)
    assert store.path(digest).read_bytes() == CONTENT
    assert progress == sorted(progress)
    assert progress[-1] == len(CONTENT)
    assert blob_server.requests == [(f"/api/v1/blobs/{digest}", None, "Bearer node-token")]
    fetch(fetcher, digest)
    assert len(blob_server.requests) == 1, "what is here is not fetched again"


def test_fetch_resumes_where_the_connection_broke(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    blob_server.cut_after = [300_000, 200_000]
    fetch(fetcher, digest)
    assert [asked for _, asked, _ in blob_server.requests] == [None, "bytes=300000-", "bytes=500000-"]
    assert store.path(digest).read_bytes() == CONTENT


def test_fetch_resumes_what_an_earlier_process_left(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    store.partial_path(digest).write_bytes(CONTENT[:1000])
    fetch(fetcher, digest)
    assert blob_server.requests[0][1] == "bytes=1000-"
    assert store.path(digest).read_bytes() == CONTENT


def test_fetch_server_without_ranges_starts_again(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    blob_server.ignore_ranges = True
    store.partial_path(digest).write_bytes(CONTENT[:1000])
    fetch(fetcher, digest)
    assert store.path(digest).read_bytes() == CONTENT


def test_fetch_damaged_start_of_an_earlier_process_is_thrown_away(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    store.partial_path(digest).write_bytes(b"?" * 1000)
    fetch(fetcher, digest)
    assert [asked for _, asked, _ in blob_server.requests] == ["bytes=1000-", None]
    assert store.path(digest).read_bytes() == CONTENT


def test_fetch_corrupted_body_is_refused(fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer) -> None:
    digest = blob_server.add(CONTENT)
    blob_server.corrupt = 99
    with pytest.raises(FetchError) as caught:
        fetch(fetcher, digest)
    assert caught.value.code == "digest_mismatch"
    assert not caught.value.transient
    assert not store.has(digest)
    assert not store.partial_path(digest).exists()


def test_fetch_longer_body_than_announced_is_refused(fetcher: BlobFetcher, blob_server: BlobServer) -> None:
    digest = blob_server.add(CONTENT)
    with pytest.raises(FetchError) as caught:
        fetch(fetcher, digest, size=1000)
    assert caught.value.code == "digest_mismatch"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_fetch_passing_refusal_is_tried_again(fetcher: BlobFetcher, blob_server: BlobServer, status: int) -> None:
    digest = blob_server.add(CONTENT)
    blob_server.statuses = [status, status]
    fetch(fetcher, digest)
    assert len(blob_server.requests) == 3


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (403, "refused"), (401, "refused")])
def test_fetch_final_refusal_is_not_tried_again(
    fetcher: BlobFetcher, blob_server: BlobServer, status: int, code: str
) -> None:
    digest = blob_server.add(CONTENT)
    blob_server.statuses = [status]
    with pytest.raises(FetchError) as caught:
        fetch(fetcher, digest)
    assert (caught.value.code, caught.value.transient) == (code, False)
    assert len(blob_server.requests) == 1


def test_fetch_redirect_to_another_host_goes_without_identity(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer, other_host: BlobServer
) -> None:
    digest = other_host.add(CONTENT)
    blob_server.redirect_to = other_host.url
    fetch(fetcher, digest)
    assert store.has(digest)
    assert [authorization for _, _, authorization in other_host.requests] == [None]


def test_fetch_redirect_to_another_scheme_is_refused(fetcher: BlobFetcher, blob_server: BlobServer) -> None:
    digest = blob_server.add(CONTENT)
    blob_server.redirect_to = "file://"
    with pytest.raises(FetchError) as caught:
        fetch(fetcher, digest)
    assert caught.value.code == "refused"


def test_fetch_unreachable_control_plane_is_transient(store: BlobStore) -> None:
    lonely = BlobFetcher(store, base_url=lambda: "http://127.0.0.1:9", token=lambda: "t", policy=POLICY)
    with pytest.raises(FetchError) as caught:
        fetch(lonely, "a" * 64)
    assert (caught.value.code, caught.value.transient) == ("unreachable", True)
    assert "Bearer" not in caught.value.message
    lonely.close()


def test_fetch_beyond_the_quota_is_refused(tmp_path: Path, blob_server: BlobServer) -> None:
    digest = blob_server.add(CONTENT)
    small = BlobStore(tmp_path / "small", quota_bytes=1000)
    fetcher = BlobFetcher(small, base_url=lambda: blob_server.url, token=lambda: "node-token", policy=POLICY)
    with pytest.raises(FetchError) as caught:
        fetch(fetcher, digest)
    assert caught.value.code == "disk_quota"
    assert not blob_server.requests, "nothing is downloaded that cannot be kept"
    fetcher.close()


def test_fetch_cancelled_stops(fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer) -> None:
    digest = blob_server.add(CONTENT)
    cancelled = threading.Event()
    with pytest.raises(FetchError) as caught:
        fetcher.fetch(digest, len(CONTENT), progress=lambda _: cancelled.set(), cancelled=cancelled)
    assert caught.value.code == "cancelled"
    assert not store.has(digest)


def test_fetch_past_its_deadline_stops(store: BlobStore, blob_server: BlobServer) -> None:
    digest = blob_server.add(CONTENT)
    hasty = FetchPolicy(attempts=1, deadline_seconds=-1.0, bytes_per_second=1 << 40)
    fetcher = BlobFetcher(store, base_url=lambda: blob_server.url, token=lambda: "node-token", policy=hasty)
    with pytest.raises(FetchError) as caught:
        fetch(fetcher, digest)
    assert caught.value.code == "deadline"
    fetcher.close()


def test_fetch_of_a_shared_file_by_two_units_downloads_it_once(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    threads = [threading.Thread(target=fetch, args=(fetcher, digest)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert store.verify(digest)
    assert len(blob_server.requests) == 1


def test_fetch_full_disk_is_said_and_leaves_nothing(
    fetcher: BlobFetcher, store: BlobStore, blob_server: BlobServer
) -> None:
    digest = blob_server.add(CONTENT)
    store.partial_path(digest).symlink_to("/dev/full")
    with pytest.raises(FetchError, match="the disk is full") as caught:
        fetch(fetcher, digest)
    assert (caught.value.code, caught.value.transient) == ("disk_full", True)
    assert not store.partial_path(digest).is_symlink()
    assert len(blob_server.requests) == 1, "a full disk does not empty within a second"
    fetch(fetcher, digest)
    assert store.has(digest)
