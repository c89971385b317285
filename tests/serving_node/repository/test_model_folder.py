"""When a folder counts as changed, and what a look at all folders asks for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.repository import local
from serving_node.repository.local import PollError
from serving_node.repository.model_folder import FolderTimes, Found, ModelId, changes

EARLY, LATE = 10**18, 4 * 10**18


def stamp(path: Path, time_ns: int) -> None:
    os.utime(path, ns=(time_ns, time_ns))


def times(**parts: int) -> FolderTimes:
    return FolderTimes({name.replace("_", "."): time for name, time in parts.items()})


def test_read_times_sees_the_newest_of_each_part(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "1" / "deep").mkdir(parents=True)
    (folder / "config.pbtxt").touch()
    (folder / "1" / "deep" / "weights").touch()
    before = local.read_times(folder)
    assert set(before.parts) == {"", "1", "config.pbtxt"}
    stamp(folder / "1" / "deep" / "weights", LATE)
    after = local.read_times(folder)
    assert after.parts["1"] == LATE
    assert after.newest() == LATE > before.newest()


def test_read_times_follows_links_but_not_in_circles(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "m", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "weights").touch()
    (folder / "1").symlink_to(elsewhere)
    (folder / "circle").symlink_to(folder)
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    stamp(elsewhere / "weights", LATE)
    found = local.read_times(folder)
    assert found.parts["1"] == LATE
    assert found.parts["dangling"] == 0
    assert local.read_times(tmp_path / "nothing").newest() == 0


@pytest.mark.parametrize(
    ("newer", "version", "expected"),
    [
        ({"1": LATE}, 1, True),
        ({"1": LATE}, 2, False),
        ({"labels.txt": LATE}, 2, True),
        ({"config.pbtxt": LATE}, 1, False),
        ({"": LATE}, 1, False),
        ({}, 1, False),
    ],
)
def test_version_differs(newer: dict[str, int], version: int, expected: bool) -> None:
    parts = {"": EARLY, "1": EARLY, "2": EARLY, "config.pbtxt": EARLY, "labels.txt": EARLY}
    assert FolderTimes(parts).version_differs(FolderTimes({**parts, **newer}), version) is expected


def test_config_part_is_the_one_in_force(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "configs").mkdir(parents=True)
    (folder / "config.pbtxt").touch()
    assert local.read_times(folder, "fast").config_part == "config.pbtxt", "no such config: the default one"
    (folder / "configs" / "fast.pbtxt").touch()
    found = local.read_times(folder, "fast")
    assert found.config_part == "configs"
    assert found.with_config_at(LATE).newest() == LATE


def test_find_models_leaves_out_files_hidden_folders_and_duplicates(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one / "a", one / "same", one / ".git", two / "same", two / "b"):
        path.mkdir(parents=True)
    (one / "README").touch()
    found = local.find_models([("", one), ("", two)])
    assert [str(key) for key in found.paths] == ["a", "b"]
    assert [str(key) for key in found.duplicates] == ["same"]
    apart = local.find_models([("one", one), ("two", two)])
    assert [str(key) for key in apart.paths] == ["one::a", "one::same", "two::b", "two::same"]
    with pytest.raises(PollError, match="cannot be read"):
        local.find_models([("", tmp_path / "nothing")])


@pytest.mark.parametrize("name", [".", "..", "a/b", "\0", ".git", "", "missing"])
def test_locate_finds_nothing_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert not local.locate([("", tmp_path)], name).paths


model_ids = st.builds(ModelId, st.just(""), st.sampled_from("abcd"))
stamps = st.dictionaries(model_ids, st.integers(1, 3))


@given(stamps, stamps)
def test_changes_lead_from_what_is_known_to_what_is_there(known: dict[ModelId, int], there: dict[ModelId, int]) -> None:
    wanted = changes(
        {key: times(x=time) for key, time in known.items()},
        Found({key: Path(str(key)) for key in there}),
        {key: times(x=time) for key, time in there.items()},
    )
    assert set(wanted.unload) == set(known) - set(there)
    assert set(wanted.load) == {key for key, time in there.items() if time > known.get(key, 0)}
    assert list(wanted.load) == sorted(wanted.load)


def test_write_files_stays_in_the_model_folder() -> None:
    for path in ("../x", "1/../../x", "..", "", "1/\0"):
        with pytest.raises(PollError):
            local.write_files("m", {path: b"x"})
    root = local.write_files("m", {"1/a/model.py": b"x", "/etc/passwd": b"y"})
    try:
        assert (root.stat().st_mode & 0o077) == 0
        found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        assert found == ["m/1/a/model.py", "m/etc/passwd"]
    finally:
        local.remove(root)
    assert not root.exists()
