from __future__ import annotations

from pathlib import Path

import pytest

from serving_node.contract.model_config import parse_json
from serving_node.scheduling.cache_scope import content_origin

CONFIG = parse_json({"name": "m", "backend": "python", "response_cache": {"enable": True}})


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "1"


FILES = {"1/model.py": "code", "1/data/table.txt": "rows", "labels.txt": "a", "2/model.py": "other"}


def origin(folder: Path, **changed: str) -> bytes:
    return content_origin("m", 1, CONFIG, write(folder, FILES | changed))


def test_the_same_version_has_the_same_origin_on_every_node(tmp_path: Path) -> None:
    assert origin(tmp_path / "one") == origin(tmp_path / "elsewhere" / "two")


@pytest.mark.parametrize("name", ["1/model.py", "1/data/table.txt", "labels.txt", "1/new.txt", "shared/new.txt"])
def test_files_that_may_change_answers_change_the_origin(tmp_path: Path, name: str) -> None:
    assert origin(tmp_path / "one") != origin(tmp_path / "two", **{name: "changed"})


@pytest.mark.parametrize("name", ["2/model.py", "3/model.py", "config.pbtxt", "1/__pycache__/model.pyc"])
def test_files_of_others_do_not(tmp_path: Path, name: str) -> None:
    assert origin(tmp_path / "one") == origin(tmp_path / "two", **{name: "changed"})


def test_name_version_and_config_are_part_of_it(tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    other = parse_json({"name": "m", "backend": "python", "max_batch_size": 4, "response_cache": {"enable": True}})
    found = {
        content_origin("m", 1, CONFIG, folder),
        content_origin("n", 1, CONFIG, folder),
        content_origin("m", 2, CONFIG, folder),
        content_origin("m", 1, other, folder),
    }
    assert len(found) == 4
