"""How the SDK cuts a file: whatever happens, each byte at its place, and the last digest that of the whole."""

from __future__ import annotations

import base64
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128

from flotilla.sdk import ApiError, chunks
from flotilla.sdk.chunks import Chunk, Chunks, Line

SIZE = 1000
CONTENT = bytes(range(250)) * 4


@pytest.fixture(scope="module", autouse=True)
def _small_chunks() -> object:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (
            ("FIRST_BYTES", 50),
            ("LEAST_BYTES", 10),
            ("MOST_BYTES", 400),
            ("_PIECE_BYTES", 20),
            ("_KEPT_EVERY", 60),
        ):
            patched.setattr(chunks, name, value)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chunks") / "file"
    path.write_bytes(b"before" + CONTENT + b"behind")
    return path


def checksum(offset: int) -> str:
    return f"xxh3-prefix {base64.b64encode(xxh3_128(CONTENT[:offset]).digest()).decode()}"


def require_right(chunk: Chunk, offset: int) -> bytes:
    content = b"".join(chunk)
    assert (chunk.offset, len(content)) == (offset, chunk.length)
    assert content == CONTENT[offset : offset + chunk.length]
    assert chunk.checksum in ("", checksum(offset + chunk.length))
    return content


@given(
    start=st.integers(0, SIZE - 1),
    steps=st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.floats(0, 2)), max_size=20),
)
def test_any_way_through_the_file(file: Path, start: int, steps: list[tuple[int, bool, float]]) -> None:
    """Each step says how many bytes of a chunk arrive, whether it counts in part, and how long it took."""
    with file.open("rb") as source:
        line = Line()
        parts = Chunks(source, SIZE, len(b"before"), start, lambda _reached: None, line)
        offset = start
        chunk = parts.at(offset)
        assert bool(chunk.checksum) == (start > 0 or SIZE <= 50)
        for arrived, is_cut, seconds in steps:
            chunk = parts.at(offset)
            content = require_right(chunk, offset)
            if is_cut:
                offset = max(0, offset - arrived) if chunk.checksum else offset + min(arrived, len(content) - 1)
                line.note_failure(chunk.length)
            else:
                offset += len(content)
                parts.note_success(chunk, seconds)
            if offset == SIZE:
                break
        while offset < SIZE:
            chunk = parts.at(offset)
            offset += len(require_right(chunk, offset))
            parts.note_success(chunk, 0)
        assert chunk.checksum == checksum(SIZE)


def test_a_cut_costs_reading_from_the_last_digest_that_was_kept(file: Path) -> None:
    with file.open("rb") as source:
        parts = Chunks(source, SIZE, len(b"before"), 0, lambda _reached: None, Line())
        for _turn in range(3):
            parts.note_success(parts.at(0), 0)
        sent = b"".join(islice(parts.at(0), 15))
        assert sent == CONTENT[:300]
        assert next(iter(parts.at(260))) == CONTENT[260:280]
        assert set(parts._kept) == {60, 120, 180, 240}


def test_what_refuses_large_chunks_gets_no_more_of_them(file: Path) -> None:
    with file.open("rb") as source:
        line = Line()
        parts = Chunks(source, SIZE, 0, 0, lambda _reached: None, line)
        parts.note_success(parts.at(0), 0)
        assert parts.at(0).length == 200
        for _connection in range(2):
            line.note_failure(200, is_too_large=True)
        for _turn in range(3):
            parts.note_success(parts.at(0), 0)
        assert parts.at(0).length == 100


def test_connections_that_are_cut_together_shorten_chunks_once() -> None:
    line = Line()
    line.note_success(50, 0)
    for _connection in range(3):
        line.note_failure(200)
    assert line.chunk_bytes == 100
    for _attempt in range(9):
        line.note_failure(line.chunk_bytes)
    assert line.chunk_bytes == 10


def test_a_file_begins_with_what_another_has_found_out(file: Path) -> None:
    line = Line()
    with file.open("rb") as source:
        first = Chunks(source, SIZE, 0, 0, lambda _reached: None, line)
        first.note_success(first.at(0), 0)
        first.note_success(Chunk(SIZE - 1, 1, "", lambda: iter([b"x"])), 0)  # the short end says nothing
        assert Chunks(source, SIZE, 0, 0, lambda _reached: None, line).at(0).length == 200


def test_reading_is_told_before_each_further_piece_and_can_be_ended(file: Path) -> None:
    told: list[int] = []
    with file.open("rb") as source:
        parts = Chunks(source, SIZE, 0, 0, told.append, Line())
        assert parts.at(0).length == 50
        list(parts.at(0))
    assert told == [20, 40]


def test_file_that_became_shorter_is_said(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"x" * 70)
    with short.open("rb") as source:
        parts = Chunks(source, SIZE, 0, 0, lambda _reached: None, Line())
        parts.note_success(parts.at(0), 0)
        with pytest.raises(ApiError, match="became shorter"):
            list(parts.at(0))
