"""Write the ``_pb2.py`` and ``_pb2.pyi`` files of serving_node/contract/proto from its ``.proto`` files.

Usage: ``python scripts/generate_protos.py [--out DIR]``. DIR is the root of the tree to write, by default this one.
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


def main() -> None:
    """Parse the command line and generate."""
    parser = argparse.ArgumentParser(description="Generate the protobuf modules of serving_node/contract/proto.")
    parser.add_argument("--out", type=Path, default=ROOT, help="root of the tree to write")
    for path in generate(parser.parse_args().out.resolve()):
        print(path)


if __name__ == "__main__":
    main()
