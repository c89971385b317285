"""Digests taken while the bytes pass are those of the whole, however it arrives."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128

from console.uploads import digests
from console.uploads.digests import KeptDigests, RunningDigest


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_pieces_give_the_digest_of_the_whole(pieces: list[bytes]) -> None:
    digest = RunningDigest()
    for piece in pieces:
        digest.update(piece)
    whole = b"".join(pieces)
    assert (digest.offset, digest.sha256) == (len(whole), hashlib.sha256(whole).digest())
    assert digest.xxh3 == xxh3_128(whole).digest()


def test_copy_goes_its_own_way() -> None:
    digest = RunningDigest()
    digest.update(b"kept")
    copy = digest.copy()
    digest.update(b"refused")
    assert (copy.offset, copy.sha256) == (4, hashlib.sha256(b"kept").digest())


def test_what_another_process_received_is_read_once_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(1000)
    (tmp_path / "staged").write_bytes(content)
    monkeypatch.setattr(digests, "CATCH_UP_BYTES", 600)
    digest = RunningDigest()
    digest.update(content[:100])
    with (tmp_path / "staged").open("rb") as file:
        assert not digest.catch_up(file.fileno(), 1000)
        assert digest.offset == 700
        assert digest.catch_up(file.fileno(), 1000)
    assert digest.sha256 == hashlib.sha256(content).digest()


def test_missing_bytes_are_no_endless_read(tmp_path: Path) -> None:
    (tmp_path / "staged").write_bytes(b"12")
    with (tmp_path / "staged").open("rb") as file:
        assert not RunningDigest().catch_up(file.fileno(), 5)


def test_kept_digests_are_few_and_never_ahead() -> None:
    kept, names = KeptDigests(most=2), [uuid.uuid4() for _ in range(3)]
    for name in names:
        digest = RunningDigest()
        digest.update(b"abc")
        kept.keep(name, digest)
    assert kept.take(names[0], 3).offset == 0
    assert kept.take(names[1], 3).offset == 3
    assert kept.take(names[1], 3).offset == 0
    assert kept.take(names[2], 2).offset == 0
