"""Reads what pickles would import, without unpickling: run in the sandbox, because files are of strangers.

``python pickle_process.py ROOT NAMES DESCRIPTOR``: the files ``ROOT/0``, ``ROOT/1``... are called as the JSON list in
the file NAMES says; one JSON line for each goes to the descriptor. Nothing of Flotilla is imported here. A file is only
clean when every pickle in it was read to its end and every import in it is known; what cannot be read is an error,
never clean.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickletools
import resource
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from picklescan.scanner import SafetyLevel, scan_pickle_bytes

MAX_MEMBERS = 20_000
MAX_UNPACKED_BYTES = 4 * 1024**3
MAX_GLOBALS = 2000
MEMORY_BYTES = 3 * 1024**3
CPU_SECONDS = 120
# The library reads operations of a pickle into a list: one larger than this is not read.
MAX_PICKLE_BYTES = 256 * 1024**2

_HEAD = 16
_NUMPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
_PROTOCOLS = tuple(bytes([0x80, number]) for number in range(2, 6))
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"x\x01", b"x\x9c", b"ZF")
_PICKLE_NAMES = (".pkl", ".pickle", ".joblib", ".dill")
# torch.save before its zip format: these pickles, then raw storages that nobody unpickles.
_LEGACY_PICKLES = 5
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class Unreadable(Exception):
    """The file, or a part of it, cannot be read to its end; the message says why."""


class Found:
    """What the pickles of one file import, by how it is judged."""

    def __init__(self) -> None:
        self.pickles = 0
        self.looks_pickled = False
        self.globals: dict[str, str] = {}

    def add(self, part: bytes, name: str) -> None:
        """Read one stream of pickles, the whole of it if it is whole."""
        result = scan_pickle_bytes(io.BytesIO(part), name)
        for one in result.globals:
            if len(self.globals) >= MAX_GLOBALS:
                raise Unreadable(f"{name} imports more than {MAX_GLOBALS} things")
            key = f"{one.module}.{one.name}"[:300]
            if self.globals.get(key) != SafetyLevel.Dangerous.value:
                self.globals[key] = one.safety.value
        # A pickle that breaks off still does what stands before its break.
        if result.scan_err:
            raise Unreadable(f"{name} breaks off inside a pickle")


def scan(path: Path, name: str) -> dict[str, Any]:
    """Return what is in one file: how many pickles, what they import, and what could not be read (``problem``)."""
    found, problem = Found(), ""
    try:
        with path.open("rb") as file:
            _scan_stream(file, name, found, MAX_UNPACKED_BYTES, depth=0)
    except Unreadable as error:
        problem = str(error)
    except (MemoryError, RecursionError):
        problem = f"{name} needs more memory than the scan may use"
    except Exception as error:  # whatever a stranger's file makes a reader raise
        problem = f"{name} cannot be read: {type(error).__name__}: {error}"[:300]
    return {
        "path": name,
        "pickles": found.pickles,
        "looks_pickled": found.looks_pickled,
        "globals": found.globals,
        "problem": problem,
    }


def _scan_stream(file: IO[bytes], name: str, found: Found, budget: int, depth: int) -> None:
    head = file.read(_HEAD)
    file.seek(0)
    found.looks_pickled |= _concerns("", head)
    if head.startswith(_ZIP):
        _scan_zip(file, name, found, budget, depth)
    elif head.startswith(_NUMPY):
        _scan_numpy(file, name, found)
    elif opener := next((opener for magic, opener in _PACKED.items() if head.startswith(magic)), None):
        _scan_packed(_bounded(opener(file, "rb"), name), name, found, budget, depth)
    elif head.startswith(_ZLIB):
        _scan_packed(_inflated(file, name), name, found, budget, depth)
    elif not _scan_legacy_torch(file, name, found):
        _scan_pickles(file, name, found)


def _scan_pickles(file: IO[bytes], name: str, found: Found) -> None:
    """Read pickles one after the other up to the end of the file, which must be the end of one."""
    data = _read(file, name)
    if not data:
        raise Unreadable(f"{name} is empty")
    # The library takes what it cannot parse at all for no pickle; here that is no answer.
    place = io.BytesIO(data)
    while place.tell() < len(data):
        try:
            for _operation in pickletools.genops(place):
                pass
        except Exception as error:
            found.add(data, name)
            raise Unreadable(f"{name} is not made of whole pickles only: {error}"[:300]) from error
        found.pickles += 1
    found.add(data, name)


def _scan_legacy_torch(file: IO[bytes], name: str, found: Found) -> bool:
    """Read a file of torch.save without zip; False when it is none."""
    try:
        first = [(operation.name, value) for operation, value, _place in pickletools.genops(file)]
    except Exception:
        first = []
    is_legacy = any(value == _LEGACY_MAGIC for _name, value in first)
    file.seek(0)
    if not is_legacy:
        return False
    # What follows the pickles are raw numbers; only so many pickles are ever loaded.
    ends = [0]
    for _pickle in range(_LEGACY_PICKLES):
        try:
            for _operation in pickletools.genops(file):
                pass
        except Exception as error:
            raise Unreadable(f"{name} has no {_LEGACY_PICKLES} pickles as torch.save writes them") from error
        ends.append(file.tell())
        if ends[-1] > MAX_PICKLE_BYTES:
            raise Unreadable(f"{name} has pickles of more than {MAX_PICKLE_BYTES} bytes")
    for begin, end in pairwise(ends):
        file.seek(begin)
        found.add(file.read(end - begin), name)
    found.pickles += _LEGACY_PICKLES
    return True


def _scan_zip(file: IO[bytes], name: str, found: Found, budget: int, depth: int) -> None:
    """Read every member that is a pickle, an array or an archive, by name or by its first bytes."""
    if depth > 1:
        raise Unreadable(f"{name} is an archive inside an archive inside an archive")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise Unreadable(f"{name} has more than {MAX_MEMBERS} members")
        if sum(member.file_size for member in members) > budget:
            raise Unreadable(f"{name} unpacks to more than {budget} bytes")
        if len({member.filename for member in members}) < len(members):
            raise Unreadable(f"{name} has two members of one name")
        for member in members:
            inner = f"{name}:{member.filename}"[:300]
            if member.flag_bits & 1:
                raise Unreadable(f"{inner} is encrypted")
            with archive.open(member) as content:
                head = content.read(_HEAD)
            if not _concerns(member.filename, head):
                continue
            with archive.open(member) as content:
                data = _read(content, inner)
            before = len(found.globals)
            try:
                _scan_stream(io.BytesIO(data), inner, found, budget, depth + 1)
            except Unreadable:
                # Weights may begin like a pickle by chance; they import nothing then, and nobody unpickles them.
                by_chance = head.startswith(_PROTOCOLS) and not _is_named_so(member.filename)
                if not by_chance or len(found.globals) > before:
                    raise


def _is_named_so(name: str) -> bool:
    return name.lower().endswith(_PICKLE_NAMES)


def _concerns(name: str, head: bytes) -> bool:
    return (
        _is_named_so(name)
        or head.startswith((*_PROTOCOLS, _NUMPY, _ZIP))
        or any(head.startswith(magic) for magic in _PACKED)
    )


def _scan_numpy(file: IO[bytes], name: str, found: Found) -> None:
    """Read the pickle of an array of objects; other arrays hold numbers only."""
    import numpy as np

    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    _shape, _order, dtype = reader(file)
    if dtype.hasobject:
        _scan_pickles(io.BytesIO(_read(file, name)), name, found)


def _scan_packed(data: bytes, name: str, found: Found, budget: int, depth: int) -> None:
    if depth > 1:
        raise Unreadable(f"{name} is packed more than twice")
    _scan_stream(io.BytesIO(data), name, found, budget, depth + 1)


def _bounded(file: Any, name: str) -> bytes:
    with file:
        return _read(file, name)


def _inflated(file: IO[bytes], name: str) -> bytes:
    if file.read(2) == b"ZF":
        raise Unreadable(f"{name} is packed in a way of old that is not read")
    file.seek(0)
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(file.read(MAX_PICKLE_BYTES), MAX_PICKLE_BYTES)
    if not unpacker.eof or unpacker.unused_data or file.read(1):
        raise Unreadable(f"{name} unpacks to more than {MAX_PICKLE_BYTES} bytes, or is cut off")
    return data


def _read(file: IO[bytes], name: str) -> bytes:
    data = file.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise Unreadable(f"{name} has more than {MAX_PICKLE_BYTES} bytes to read")
    return data


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _lines(root: Path, names: list[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        yield json.dumps(scan(root / str(index), name))


if __name__ == "__main__":
    _limit()
    with os.fdopen(int(sys.argv[3]), "w", encoding="utf-8") as _answer:
        for _line in _lines(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())):
            print(_line, file=_answer, flush=True)
