from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.uploads.protocol import Checksum, ProtocolError, read_checksum, read_length, read_metadata, read_offset

KEYS = st.text("abcdefghijklmnopqrstuvwxyz_-", min_size=1, max_size=20)


def encoded(metadata: dict[str, str]) -> str:
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items())


@given(st.dictionaries(KEYS, st.text(st.characters(exclude_categories=["Cs"]), max_size=50), max_size=5))
def test_metadata_round_trips(metadata: dict[str, str]) -> None:
    assert read_metadata({"upload-metadata": encoded(metadata)}) == metadata


@pytest.mark.parametrize("text", ["path !!!", "path /w==", "a YQ==,a YQ==", "x" * 9000])
def test_metadata_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError) as error:
        read_metadata({"upload-metadata": text})
    assert error.value.status == 400


@given(st.text(max_size=30))
def test_offset_is_a_plain_whole_number_or_refused(text: str) -> None:
    if text.isascii() and text.isdigit() and len(text) <= 18:
        assert read_offset({"upload-offset": text}) == int(text)
        return
    with pytest.raises(ProtocolError) as error:
        read_offset({"upload-offset": text})
    assert error.value.status == 400


def test_length_over_the_limit_is_413_and_deferred_length_is_400() -> None:
    assert read_length({"upload-length": "10"}, 10) == 10
    with pytest.raises(ProtocolError) as too_large:
        read_length({"upload-length": "11"}, 10)
    with pytest.raises(ProtocolError) as deferred:
        read_length({"upload-defer-length": "1"}, 10)
    assert (too_large.value.status, deferred.value.status) == (413, 400)


def test_checksum_is_read_and_malformed_ones_are_refused() -> None:
    assert read_checksum({}) is None
    for algorithm, count in (("sha1", 20), ("sha256", 32), ("sha256-prefix", 32), ("xxh3-prefix", 16)):
        for length in (16, 20, 32):
            digest = b"f" * length
            words = {"upload-checksum": f"{algorithm} {base64.b64encode(digest).decode()}"}
            if length == count:
                assert read_checksum(words) == Checksum(algorithm, digest)
            else:
                with pytest.raises(ProtocolError) as error:
                    read_checksum(words)
                assert error.value.code == "checksum_malformed"
    for text in ("md5 YQ==", "sha256", "sha256 !!", "sha256 YQ==", ""):
        with pytest.raises(ProtocolError) as error:
            read_checksum({"upload-checksum": text})
        assert error.value.status == 400


def test_checksum_of_an_older_client_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ProtocolError, match="knows sha1, sha256, sha256-prefix, xxh3-prefix") as error:
        read_checksum({"upload-checksum": "blake3-prefix " + base64.b64encode(bytes(32)).decode()})
    assert (error.value.status, error.value.code) == (400, "checksum_algorithm")
