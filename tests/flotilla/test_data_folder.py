"""The data folder's lock, secrets and ports."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from flotilla.up.data_folder import AlreadyRunning, DataFolder


def test_secret_is_made_once_with_mode_0600(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.acquire()
    first = folder.secret("secret-key")
    assert len(first) >= 32
    assert folder.secret("secret-key") == first
    assert stat.S_IMODE(folder.secret_file("secret-key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o711


def test_second_holder_is_told_where_the_first_one_is(tmp_path: Path) -> None:
    first = DataFolder(tmp_path)
    first.acquire()
    first.write_run_info({"pid": 1, "url": "http://127.0.0.1:7070"})
    with pytest.raises(AlreadyRunning) as refusal:
        DataFolder(tmp_path).acquire()
    assert refusal.value.info["url"] == "http://127.0.0.1:7070"
    first.release()
    DataFolder(tmp_path).acquire()


def test_port_is_kept_unless_somebody_took_it(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.acquire()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        taken = probe.getsockname()[1]
        chosen = folder.port("postgres", taken)
        assert chosen != taken
    assert folder.port("postgres", taken) == chosen


def test_folders_prefer_different_ports(tmp_path: Path) -> None:
    ports = set()
    for name in ("a", "b", "c"):
        folder = DataFolder(tmp_path / name)
        folder.acquire()
        ports |= {folder.port("postgres"), folder.port("valkey")}
    assert len(ports) == 6
