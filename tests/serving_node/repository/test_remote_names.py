"""Names of remote repositories, their credentials, and what must be fetched: the pure parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.repository.cloud_credentials import CredentialError, find_credentials
from serving_node.repository.mirror_plan import StoredObject, plan, sort_out
from serving_node.repository.remote_location import RemoteLocation, StoreKind, is_remote, parse_location


@pytest.mark.parametrize(
    ("text", "bucket", "prefix", "endpoint"),
    [
        ("s3://bucket", "bucket", "", ""),
        ("s3://bucket/a//b/", "bucket", "a/b", ""),
        ("s3://localhost:9000/bucket/a", "bucket", "a", "http://localhost:9000"),
        ("s3://http://10.0.0.1:9000/bucket", "bucket", "", "http://10.0.0.1:9000"),
        ("s3://https://minio.example:443/bucket/a/b", "bucket", "a/b", "https://minio.example:443"),
        ("gs://bucket/models", "bucket", "models", ""),
        ("as://acc.blob.core.windows.net/box/models", "box", "models", "https://acc.blob.core.windows.net"),
    ],
)
def test_parse_location(text: str, bucket: str, prefix: str, endpoint: str) -> None:
    location = parse_location(text)
    assert (location.bucket, location.prefix, location.endpoint) == (bucket, prefix, endpoint)
    assert str(location) == text


def test_azure_account_is_in_the_host() -> None:
    assert parse_location("as://acc.blob.core.windows.net/box").account == "acc"


@pytest.mark.parametrize("text", ["s3://", "gs://", "gs:///", "as://account", "as:///x/y", "s3://http://host/bucket"])
def test_parse_location_refuses(text: str) -> None:
    assert is_remote(text)
    with pytest.raises(ValueError, match=r"no bucket name found|not of the form"):
        parse_location(text)


def test_local_paths_are_not_remote() -> None:
    assert not any(map(is_remote, ("/models", "s3", "file:///x", "./s3://")))


def s3(text: str = "s3://bucket/models") -> RemoteLocation:
    return parse_location(text)


def test_credentials_from_the_environment() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_DEFAULT_REGION": "eu"}
    found = find_credentials(s3(), environment)
    assert (found["key_id"], found["secret_key"], found["region"], found["session_token"]) == (
        "id",
        "very-secret",
        "eu",
        "",
    )
    assert "very-secret" not in repr(found)
    azure = find_credentials(parse_location("as://a.b/c"), {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "k"})
    assert (azure["account_str"], azure["account_key"]) == ("acc", "k")
    assert find_credentials(parse_location("gs://b"), {"GOOGLE_APPLICATION_CREDENTIALS": "/f"})["path"] == "/f"


def test_credentials_from_a_file_go_by_the_longest_name(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    document = {
        "s3": {"": {"key_id": "any", "secret_key": "s"}, "s3://bucket": {"key_id": "mine", "secret_key": "s"}},
        "gs": {"gs://bucket": "/key.json"},
    }
    file.write_text(json.dumps(document))
    environment = {"TRITON_CLOUD_CREDENTIAL_PATH": str(file), "AWS_ACCESS_KEY_ID": "not asked", "HOME": str(tmp_path)}
    assert find_credentials(s3(), environment)["key_id"] == "mine"
    assert find_credentials(s3("s3://other"), environment)["key_id"] == "any"
    assert find_credentials(parse_location("gs://bucket/x"), environment)["path"] == "/key.json"
    with pytest.raises(CredentialError, match=r"has none for gs://other"):
        find_credentials(parse_location("gs://other"), environment)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{very-secret", "is not JSON"), ('{"s3": {"": ["very-secret"]}}', "are not texts"), ("[]", "has none for")],
)
def test_bad_credential_files_are_refused_without_showing_them(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(CredentialError, match=sentence) as caught:
        find_credentials(s3(), {"TRITON_CLOUD_CREDENTIAL_PATH": str(file)})
    assert "very-secret" not in str(caught.value)
    with pytest.raises(CredentialError, match="cannot be read"):
        find_credentials(s3(), {"TRITON_CLOUD_CREDENTIAL_PATH": str(tmp_path / "missing")})


def test_credentials_of_an_aws_profile(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[work]\naws_access_key_id = id\naws_secret_access_key = s\n")
    (tmp_path / ".aws" / "config").write_text("[profile work]\nregion = eu-north-1\n")
    environment = {"HOME": str(tmp_path), "AWS_PROFILE": "work"}
    found = find_credentials(s3(), environment)
    assert (found["key_id"], found["region"]) == ("id", "eu-north-1")
    with pytest.raises(CredentialError, match="there is no AWS profile 'home'"):
        find_credentials(s3(), {**environment, "AWS_PROFILE": "home"})
    assert not find_credentials(s3(), {"HOME": str(tmp_path)}).values, "no default profile, no credentials"


def stored(path: str, tag: str = "1", size: int = 1) -> StoredObject:
    return StoredObject(path, tag, size)


def test_markers_of_folders_are_no_files() -> None:
    listed = [
        stored("m", size=0),
        stored("m/1", size=0),
        stored("m/1/x"),
        stored("ens/1", size=0),
        stored("m/e", size=0),
    ]
    mirror = sort_out(listed)
    assert set(mirror.objects) == {"m/1/x", "m/e"}
    assert mirror.folders == {"m", "m/1", "ens/1"}


def test_names_that_leave_the_folder_are_left_out() -> None:
    bad = ["../x", "/etc/x", "m/../../x", "m//x", "m/./x", "a\\b", "m/\0"]
    assert not sort_out(map(stored, bad)).objects


names = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"), max_size=6)


@given(names, names)
def test_plan_leads_to_what_is_wanted(known: dict[str, str], wanted: dict[str, str]) -> None:
    mirror = sort_out(StoredObject(path, tag, 1) for path, tag in wanted.items())
    todo = plan(known, mirror)
    result = {path: tag for path, tag in known.items() if path not in todo.remove}
    for one in todo.fetch:
        assert result.get(one.path) != one.tag, "nothing is read that is here"
        result[one.path] = one.tag
    assert result == wanted


def test_kinds_are_tritons() -> None:
    assert [kind.value for kind in StoreKind] == ["s3", "gs", "as"]
