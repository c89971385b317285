"""The registry of regions: what may be registered, and how long a region lives. Texts are Triton's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.shared_memory import DISABLED, RegionKind, SharedMemory, Slice
from serving_node.frontends.shared_memory.registry import check_part

MakeObject = Callable[..., str]
SYSTEM, CUDA = RegionKind.SYSTEM, RegionKind.CUDA


def folder(key: str) -> Path:
    return Path("/dev/shm", key.lstrip("/"))


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory()


def names(memory: SharedMemory) -> list[str]:
    return [fact.name for fact in memory.status(SYSTEM, "")]


# -- registering


def test_registered_regions_are_listed_by_name(memory: SharedMemory, shm: MakeObject) -> None:
    first, second = shm(8192), shm(64)
    memory.register_system("r2", second, 0, 64)
    memory.register_system("r1", first, 4096, 100)
    assert [(fact.name, fact.details) for fact in memory.status(SYSTEM, "")] == [
        ("r1", {"key": first, "offset": 4096, "byte_size": 100}),
        ("r2", {"key": second, "offset": 0, "byte_size": 64}),
    ]
    assert [fact.name for fact in memory.status(SYSTEM, "r2")] == ["r2"]
    assert memory.status(CUDA, "") == []


def test_one_object_may_be_registered_under_several_names(memory: SharedMemory, shm: MakeObject) -> None:
    key = shm()
    memory.register_system("a", key, 0, 64)
    memory.register_system("b", "/" + key, 0, 4096)
    assert names(memory) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "key", "offset", "size", "code", "text"),
    [
        ("", "KEY", 0, 4, "INVALID_ARG", "'region name' is necessary to register system shared memory region"),
        ("taken", "KEY", 0, 4, "ALREADY_EXISTS", "shared memory region 'taken' already in manager"),
        ("r", "/no-such-object", 0, 4, "INTERNAL", "Unable to open shared memory region: '/no-such-object'"),
        ("r", "/a/b", 0, 4, "INTERNAL", "Unable to open shared memory region: '/a/b'"),
        ("r", "/..", 0, 4, "INTERNAL", "Unable to open shared memory region: '/..'"),
        ("r", ".", 0, 4, "INTERNAL", "Unable to open shared memory region: '.'"),
        ("r", "a\0b", 0, 4, "INTERNAL", "Unable to open shared memory region: 'a\0b'"),
        ("r", "", 0, 4, "INVALID_ARG", "cannot register shared memory region 'r' - invalid shm key ''"),
        ("r", "//", 0, 4, "INVALID_ARG", "cannot register shared memory region 'r' - invalid shm key '//'"),
        ("r", "KEY", 0, 4097, "INVALID_ARG", "failed to register shared memory region 'r': invalid args"),
        ("r", "KEY", 4096, 1, "INVALID_ARG", "failed to register shared memory region 'r': invalid args"),
        ("r", "KEY", 2**64 - 4096, 8192, "INVALID_ARG", "failed to register shared memory region 'r': invalid args"),
        ("r", "KEY", 4096, 2**64 - 4096, "INVALID_ARG", "failed to register shared memory region 'r': invalid args"),
        ("r", "KEY", 0, 0, "INVALID_ARG", "unable to process address spaceInvalid argument"),
        ("r", "KEY", 8, 8, "INVALID_ARG", "unable to process address spaceInvalid argument"),
    ],
)
def test_bad_registrations_are_refused(
    memory: SharedMemory, shm: MakeObject, name: str, key: str, offset: int, size: int, code: str, text: str
) -> None:
    memory.register_system("taken", shm(), 0, 4)
    with pytest.raises(InferenceError) as caught:
        memory.register_system(name, shm() if key == "KEY" else key, offset, size)
    assert caught.value.code == code
    assert caught.value.message.endswith(text)
    assert names(memory) == ["taken"]


@pytest.mark.parametrize("slashes", ["", "/", "///"])
def test_memory_of_the_python_backend_cannot_be_registered(memory: SharedMemory, slashes: str) -> None:
    key = f"{slashes}triton_python_backend_shm_region_7"
    with pytest.raises(InferenceError, match="contains the reserved prefix 'triton_python_backend_shm_region_'"):
        memory.register_system("r", key, 0, 4)


def test_links_folders_and_pipes_are_no_regions(memory: SharedMemory, shm: MakeObject, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 64)
    link, pipe, directory = (folder(shm()) for _ in range(3))
    for path in (link, pipe, directory):
        path.unlink()
    link.symlink_to(secret)
    os.mkfifo(pipe)
    directory.mkdir()
    for path in (link, pipe, directory):
        with pytest.raises(InferenceError, match="Unable to open shared memory region"):
            memory.register_system("r", path.name, 0, 4)
    directory.rmdir()


def test_changes_are_refused_and_status_allowed_unless_the_node_is_told_otherwise(shm: MakeObject) -> None:
    memory = SharedMemory.disabled()
    for change in (
        lambda: memory.register_system("r", shm(), 0, 4),
        lambda: memory.register_cuda("r", b"x" * 64, 0, 4),
        lambda: memory.unregister(SYSTEM, ""),
    ):
        with pytest.raises(InferenceError) as caught:
            change()
        assert (caught.value.code, caught.value.message) == (ErrorCode.UNSUPPORTED, DISABLED)
    assert memory.status(SYSTEM, "") == []


def test_status_of_unknown_and_of_other_regions(memory: SharedMemory, shm: MakeObject) -> None:
    memory.register_system("r", shm(), 0, 4)
    with pytest.raises(InferenceError, match=r"^Unable to find cuda shared memory region: 'q'$"):
        memory.status(CUDA, "q")
    with pytest.raises(InferenceError, match=r"^The region named 'r' is registered as system shared memory, not CUDA"):
        memory.status(CUDA, "r")


# -- use


def test_inputs_are_views_of_the_region_that_cannot_be_written(memory: SharedMemory, shm: MakeObject) -> None:
    key = shm(4096, b"0123456789")
    memory.register_system("r", key, 0, 4096)
    lease = memory.lease()
    view = lease.read(Slice("r", 2, 4))
    assert (bytes(view), view.readonly) == (b"2345", True)
    with folder(key).open("r+b") as file:
        file.write(b"......")
    assert bytes(view) == b"...."


def test_outputs_are_written_where_the_request_says(memory: SharedMemory, shm: MakeObject) -> None:
    key = shm(8192)
    memory.register_system("r", key, 4096, 4096)
    lease = memory.lease()
    lease.direct("y", Slice("r", 16, 4))
    assert lease.store(Tensor("y", "UINT8", (3,), b"abc"))
    assert not lease.store(Tensor("z", "UINT8", (3,), b"abc"))
    assert folder(key).read_bytes()[4096 + 16 : 4096 + 20] == b"abc\0"


def test_an_output_that_does_not_fit_is_refused_whole(memory: SharedMemory, shm: MakeObject) -> None:
    key = shm(16)
    memory.register_system("r", key, 0, 16)
    lease = memory.lease()
    lease.direct("y", Slice("r", 0, 4))
    with pytest.raises(InferenceError) as caught:
        lease.store(Tensor("y", "UINT8", (5,), b"abcde"))
    assert caught.value.code is ErrorCode.INTERNAL
    assert caught.value.message == (
        "shared memory size specified with the request for output 'y' (4 bytes) should be at least 5 bytes to hold"
        " the results"
    )
    assert folder(key).read_bytes() == bytes(16)


def test_zero_bytes_are_read_and_written(memory: SharedMemory, shm: MakeObject) -> None:
    memory.register_system("r", shm(16), 0, 16)
    lease = memory.lease()
    assert bytes(lease.read(Slice("r", 15, 0))) == b""
    lease.direct("y", Slice("r", 0, 0))
    assert lease.store(Tensor("y", "FP32", (0,), b""))


def test_an_object_that_was_cut_shorter_is_refused_instead_of_killing_the_node(
    memory: SharedMemory, shm: MakeObject
) -> None:
    key = shm(8192)
    memory.register_system("r", key, 0, 8192)
    lease = memory.lease()
    lease.direct("y", Slice("r", 4096, 4))
    os.truncate(folder(key), 4096)
    with pytest.raises(InferenceError, match=r"Invalid offset \+ byte size for shared memory region: 'r'"):
        lease.read(Slice("r", 4096, 4))
    with pytest.raises(InferenceError, match=r"Invalid offset \+ byte size for shared memory region: 'r'"):
        lease.store(Tensor("y", "UINT8", (4,), b"abcd"))
    assert bytes(lease.read(Slice("r", 0, 4))) == bytes(4)


def test_output_may_overlap_the_input_that_it_is_made_of(memory: SharedMemory, shm: MakeObject) -> None:
    key = shm(16, b"abcdef")
    memory.register_system("r", key, 0, 16)
    lease = memory.lease()
    view = lease.read(Slice("r", 0, 6))
    lease.direct("y", Slice("r", 2, 6))
    assert lease.store(Tensor("y", "UINT8", (6,), view))
    assert folder(key).read_bytes()[:8] == b"ababcdef"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 2**40))
def test_only_parts_inside_the_region_pass(offset: int, size: int, region: int) -> None:
    if offset < region and offset + size <= region:
        check_part(Slice("r", offset, size), region)
    else:
        with pytest.raises(InferenceError):
            check_part(Slice("r", offset, size), region)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Slice("q", 0, 1), "Unable to find shared memory region: 'q'"),
        (Slice("r", 16, 0), "Invalid offset for shared memory region: 'r'"),
        (Slice("r", 15, 2), "Invalid offset + byte size for shared memory region: 'r'"),
        (
            Slice("r", 1, 2**64 - 1),
            "Integer overflow detected: byte_size (18446744073709551615) + offset (1) exceeds maximum value"
            " (18446744073709551615) for region 'r'",
        ),
    ],
)
def test_parts_outside_have_their_own_sentences(memory: SharedMemory, shm: MakeObject, part: Slice, text: str) -> None:
    memory.register_system("r", shm(16), 0, 16)
    lease = memory.lease()
    for use in (lambda: lease.read(part), lambda: lease.direct("y", part)):
        with pytest.raises(InferenceError) as caught:
            use()
        assert caught.value.message == text
    lease.release()
    memory.unregister(SYSTEM, "r")
    assert names(memory) == []


# -- leaving


def test_unregister_one_all_or_none(memory: SharedMemory, shm: MakeObject) -> None:
    for name in ("a", "b", "c"):
        memory.register_system(name, shm(), 0, 64)
    memory.unregister(CUDA, "a")
    memory.unregister(SYSTEM, "nobody")
    assert names(memory) == ["a", "b", "c"]
    memory.unregister(SYSTEM, "b")
    assert names(memory) == ["a", "c"]
    memory.unregister(SYSTEM, "")
    assert names(memory) == []


def test_a_region_in_use_leaves_with_its_last_request(memory: SharedMemory, shm: MakeObject) -> None:
    key = shm(64, b"data")
    memory.register_system("r", key, 0, 64)
    first, second = memory.lease(), memory.lease()
    view = first.read(Slice("r", 0, 4))
    second.direct("y", Slice("r", 0, 4))
    memory.unregister(SYSTEM, "r")
    assert names(memory) == ["r"]
    with pytest.raises(InferenceError, match="already in manager"):
        memory.register_system("r", key, 0, 64)
    first.release()
    assert second.store(Tensor("y", "UINT8", (4,), b"late"))
    assert bytes(view) == b"late"
    assert names(memory) == ["r"]
    second.release()
    assert names(memory) == []
    assert bytes(view) == b"late", "a view that outlives its request still has memory under it"
    memory.register_system("r", key, 0, 64)
    second.release()
    assert names(memory) == ["r"], "releasing twice is harmless"


def test_a_lease_ends_with_the_final_response(memory: SharedMemory, shm: MakeObject) -> None:
    memory.register_system("r", shm(64), 0, 64)
    lease = memory.lease()
    lease.read(Slice("r", 0, 4))
    memory.unregister(SYSTEM, "r")
    seen: list[InferenceResponse] = []

    def deliver(response: InferenceResponse) -> None:
        seen.append(response)
        if response.final:
            raise ValueError("a frontend's bug")

    on_response = lease.until_final(deliver)
    on_response(InferenceResponse("m", "1", final=False))
    assert names(memory) == ["r"]
    with pytest.raises(ValueError, match="bug"):
        on_response(InferenceResponse("m", "1"))
    assert names(memory) == []
    assert len(seen) == 2
