"""Repositories in object stores: what is brought here, what is read again, what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import MemoryStore, S3Store

from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.repository import cloud_store
from serving_node.repository.cloud_credentials import Credentials
from serving_node.repository.cloud_store import CloudStore, open_store
from serving_node.repository.local import PollError
from serving_node.repository.mirror_plan import StoredObject
from serving_node.repository.remote import RemoteSource, StoreError
from serving_node.repository.remote_location import parse_location
from serving_node.repository.repository import ControlMode, ModelRepository

from .served import FakeLoader, request


class Bucket:
    """Any of obstore's stores, with a count of what is read."""

    def __init__(self, store: Any, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self.cloud = CloudStore(store, prefix)
        self.reads: list[str] = []
        self.failing: set[str] = set()

    def put(self, path: str, content: bytes = b"x") -> None:
        obstore.put(self.store, f"{self.prefix}/{path}" if self.prefix else path, content)

    def delete(self, path: str) -> None:
        obstore.delete(self.store, f"{self.prefix}/{path}" if self.prefix else path)

    # what a source needs

    def list(self, prefix: str) -> Any:
        return self.cloud.list(prefix)

    def models(self) -> Any:
        return self.cloud.models()

    def read(self, one: StoredObject) -> Iterator[bytes]:
        self.reads.append(one.path)
        if one.path in self.failing:
            yield b"half"
            raise StoreError("it went away")
        yield from self.cloud.read(one)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(params=["memory", "memory with a prefix", "s3"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    if request.param != "s3":
        return Bucket(MemoryStore(), "" if request.param == "memory" else "a/b")
    host = request.getfixturevalue("s3")
    name = f"b{abs(hash(request.node.name))}"
    _make_bucket(host, name)
    opened = open_store(parse_location(f"s3://{host}/{name}/models"), KEYS)
    return Bucket(opened._store, "models")


KEYS = Credentials({"key_id": "k", "secret_key": "s"})


def _make_bucket(host: str, name: str) -> None:
    answer = httpx2.put(f"http://{host}/{name}", trust_env=False, verify=False)
    assert answer.status_code == 200, answer.text


@pytest.fixture
def source(bucket: Bucket) -> Iterator[RemoteSource]:
    made = RemoteSource("s3://bucket", bucket)
    yield made
    made.close()
    assert not made.path.exists()


def files(source: RemoteSource) -> dict[str, bytes]:
    found = (path for path in source.path.rglob("*") if path.is_file())
    return {str(path.relative_to(source.path)): path.read_bytes() for path in found}


def test_refresh_brings_everything_and_then_only_what_changed(bucket: Bucket, source: RemoteSource) -> None:
    bucket.put("m/config.pbtxt", b"config")
    bucket.put("m/1/model.onnx", b"one" * 1000)
    bucket.put("n/1/model.onnx", b"n")
    source.refresh("")
    assert files(source) == {"m/config.pbtxt": b"config", "m/1/model.onnx": b"one" * 1000, "n/1/model.onnx": b"n"}
    bucket.reads.clear()
    source.refresh("")
    assert bucket.reads == []
    bucket.put("m/1/model.onnx", b"two")
    bucket.put("m/2/model.onnx", b"new")
    bucket.delete("n/1/model.onnx")
    source.refresh("")
    assert sorted(bucket.reads) == ["m/1/model.onnx", "m/2/model.onnx"]
    assert files(source) == {"m/config.pbtxt": b"config", "m/1/model.onnx": b"two", "m/2/model.onnx": b"new"}
    assert [path.name for path in source.path.iterdir()] == ["m"], "a model without objects is gone"


def test_refresh_of_one_model_brings_no_other(bucket: Bucket, source: RemoteSource) -> None:
    bucket.put("m/1/model.onnx")
    bucket.put("mm/1/model.onnx")
    source.refresh("m")
    assert set(files(source)) == {"m/1/model.onnx"}
    assert sorted(path.name for path in source.path.iterdir()) == ["m", "mm"], "names are known all the same"
    bucket.delete("m/1/model.onnx")
    source.refresh("m")
    assert sorted(path.name for path in source.path.iterdir()) == ["mm"]


def test_failed_download_keeps_the_old_file_and_is_tried_again(bucket: Bucket, source: RemoteSource) -> None:
    bucket.put("m/1/model.onnx", b"old")
    source.refresh("")
    bucket.put("m/1/model.onnx", b"new")
    bucket.failing.add("m/1/model.onnx")
    with pytest.raises(PollError, match="s3://bucket cannot be read: it went away"):
        source.refresh("")
    assert files(source) == {"m/1/model.onnx": b"old"}
    bucket.failing.clear()
    source.refresh("")
    assert files(source) == {"m/1/model.onnx": b"new"}


async def test_repository_polls_a_bucket(bucket: Bucket) -> None:
    bucket.put("m/1/model.onnx")
    loader = FakeLoader()
    repository = ModelRepository([RemoteSource("gs://b", bucket)], loader, mode=ControlMode.POLL)
    assert await repository.start() == []
    assert [row.state for row in repository.index()] == [ModelState.READY]
    bucket.put("m/2/model.onnx")
    assert await repository.poll() == []
    assert repository.resolve("m", "", request()).version == 2
    bucket.delete("m/1/model.onnx")
    bucket.delete("m/2/model.onnx")
    await repository.poll()
    with pytest.raises(InferenceError, match="has no available versions"):
        repository.resolve("m", "", request())
    await repository.close(5.0)


async def test_repository_loads_from_a_bucket(bucket: Bucket) -> None:
    bucket.put("m/1/model.onnx", b"weights")
    bucket.put("other/1/model.onnx")
    loader = FakeLoader()
    repository = ModelRepository([RemoteSource("as://b", bucket)], loader, mode=ControlMode.EXPLICIT)
    assert await repository.start() == []
    assert [row.name for row in repository.index()] == ["m", "other"]
    assert bucket.reads == [], "only what is loaded is brought"
    await repository.load("m", None, {})
    await repository.load("m", None, {})
    assert len(loader.orders) == 1, "unmodified"
    content = await asyncio.to_thread((loader.orders[0].directory / "model.onnx").read_bytes)
    assert content == b"weights"
    assert [row.name for row in repository.index()] == ["m", "other"]
    bucket.put("m/1/model.onnx", b"heavier")
    await repository.load("m", None, {})
    assert len(loader.orders) == 2
    await repository.close(5.0)


def test_large_objects_are_read_in_parts_of_one_content(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_store, "_PART_BYTES", 10)
    bucket.put("m/1/model.onnx", b"0123456789abcdefghij!")
    bucket.put("m/1/empty", b"")
    listed = {one.path: one for one in bucket.list("")}
    assert b"".join(bucket.read(listed["m/1/model.onnx"])) == b"0123456789abcdefghij!"
    assert b"".join(bucket.read(listed["m/1/empty"])) == b""
    reading = bucket.read(listed["m/1/model.onnx"])
    assert next(reading) == b"0123456789"
    bucket.put("m/1/model.onnx", b"0123456789ABCDEFGHIJ!")
    with pytest.raises(StoreError, match="it was replaced while it was read"):
        list(reading)


def test_errors_are_sentences_without_secrets(s3: str) -> None:
    missing = open_store(parse_location(f"s3://{s3}/no-such-bucket/models"), KEYS)
    with pytest.raises(StoreError, match=r"^there is no such bucket$"):
        list(missing.list(""))
    with pytest.raises(StoreError, match="there is no such"):
        list(missing.read(StoredObject("x", "", 1)))
    with pytest.raises(StoreError, match="credentials for it cannot be used"):
        open_store(parse_location("gs://bucket"), Credentials({"path": "/no/such/file"}))


def test_store_that_is_down_is_said_in_a_sentence() -> None:
    store = S3Store(
        "b",
        endpoint="http://127.0.0.1:1",
        access_key_id="very",
        secret_access_key="secret",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(StoreError, match=r"^it cannot be reached$"):
        list(CloudStore(store, "").list(""))


def test_mirror_is_private(bucket: Bucket, source: RemoteSource) -> None:
    assert (Path(source.path).parent.stat().st_mode & 0o077) == 0
