"""Write the ``_pb2.py`` and ``_pb2.pyi`` files of serving_node/contract/proto from its ``.proto`` files.

Usage: ``python scripts/generate_protos.py [--out DIR | --check]``. DIR is the root of the tree to write, by default
this one. ``--check`` writes nothing and exits with 1 if a checked-in file is not what would be written.
The output depends on nothing but the ``.proto`` files and the versions of grpcio-tools and mypy-protobuf, so that
``make proto && git diff --exit-code`` tells whether the checked-in files are up to date.

After protoc, one step: the generated code registers its file in ``serving_node.contract.proto.pool.POOL`` instead of
protobuf's default pool (that module says why).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_DIR = Path("serving_node/contract/proto")

_DEFAULT_POOL_IMPORT = "from google.protobuf import descriptor_pool as _descriptor_pool\n"
_OWN_POOL_IMPORT = "from serving_node.contract.proto.pool import POOL as _POOL\n"
_DEFAULT_POOL = "_descriptor_pool.Default()"


def generate(out: Path) -> list[Path]:
    """Write the stubs of all ``.proto`` files under ``out`` and return their paths.

    Raises:
        subprocess.CalledProcessError: protoc refused a file; it has said why on stderr.
        RuntimeError: protoc's output is not of the form that the post-processing knows.
    """
    sources = sorted((ROOT / PROTO_DIR).glob("*.proto"))
    plugin = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--plugin=protoc-gen-mypy={plugin}"]
    command += [f"--python_out={out}", f"--mypy_out=quiet:{out}", *(str(s.relative_to(ROOT)) for s in sources)]
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    written = []
    for source in sources:
        module = out / PROTO_DIR / f"{source.stem}_pb2.py"
        module.write_text(use_own_pool(module.read_text(encoding="utf-8")), encoding="utf-8")
        written += [module, module.with_suffix(".pyi")]
    return written


def use_own_pool(code: str) -> str:
    """Return generated ``code`` registering in our pool.

    Raises:
        RuntimeError: the code has not exactly one place for each replacement.
    """
    for old, new in ((_DEFAULT_POOL_IMPORT, _OWN_POOL_IMPORT), (_DEFAULT_POOL, "_POOL")):
        if code.count(old) != 1:
            raise RuntimeError(f"protoc's output has changed: {old.strip()!r} occurs {code.count(old)} times")
        code = code.replace(old, new)
    return code


def outdated(root: Path) -> list[Path]:
    """Return the files below ``root`` that are missing, stale or no longer generated, relative to it."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        fresh = {path.relative_to(base): path.read_bytes() for path in generate(base)}
    present = {path.relative_to(root): path.read_bytes() for path in (root / PROTO_DIR).glob("*_pb2.py*")}
    return sorted(path for path in fresh.keys() | present.keys() if fresh.get(path) != present.get(path))


def main() -> int:
    """Parse the command line and generate or check; return the exit status."""
    parser = argparse.ArgumentParser(description="Generate the protobuf modules of serving_node/contract/proto.")
    parser.add_argument("--out", type=Path, default=ROOT, help="root of the tree to write")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is out of date")
    options = parser.parse_args()
    if not options.check:
        for path in generate(options.out.resolve()):
            print(path)
        return 0
    stale = outdated(options.out.resolve())
    for path in stale:
        print(f"{path} is out of date, run make proto", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
