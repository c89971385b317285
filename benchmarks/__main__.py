"""python -m benchmarks [NAME...] [--quick] [--oracle FOLDER]: ratios against a peer, measured in the same run.

Absolute rates depend on the machine and are printed only to show that both sides were loaded.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.options import Options

# name -> what it says; each is a module with a function ``run(options)``
BENCHMARKS = {
    "scheduler": "the pure batcher with many queued requests, over itself with few",
    "engine": "a model served in this process over the raw loop of its engine",
    "served_over_raw": "rows a second through a whole node over the raw loop of its engine",
    "response_cache": "a model with the response cache over the same without it",
    "wire": "HTTP and gRPC without a model over a real Triton server (needs --oracle)",
    "python_model": "a Python model in its own process, node over a real Triton server (needs --oracle)",
    "serving": "a whole node over a real Triton server, same models (needs --oracle)",
    "memory": "growth of a node's memory over a million requests (only when named)",
    "registry": "the registry's API and pages over MLflow's tracking server, with 20,000 versions (only when named)",
    "upload": "files of 2 GB pushed to the registry over reading and hashing them here (only when named)",
    "gpu": "engines on a GPU by batch size, served over their own loops (only when named)",
    "load_cycles": "growth of a node's memory over 10,000 loads and unloads of a model (only when named)",
}
_BY_DEFAULT = ("scheduler", "engine", "served_over_raw", "response_cache", "wire", "python_model", "serving")
_NEED_ORACLE = ("wire", "python_model", "serving")


def _parse() -> argparse.Namespace:
    listing = "\n".join(f"  {name:14} {text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "") + "\n" + listing,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = Options()
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*BENCHMARKS, []], help="default: the first seven")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; not worth quoting")
    parser.add_argument("--oracle", type=Path, help="folder with triton.sh and compare.py")
    parser.add_argument("-i", "--protocols", nargs="+", choices=["grpc", "http"], default=default.protocols)
    parser.add_argument("-c", "--concurrency", nargs="+", type=int, default=default.concurrency)
    parser.add_argument("--rounds", type=int, default=default.rounds)
    parser.add_argument("--requests", type=int, default=default.requests, help="of the memory benchmark")
    parser.add_argument("--port-base", type=int, default=default.port_base)
    return parser.parse_args()


def main() -> None:
    arguments = _parse()
    oracle: Path | None = arguments.oracle
    if oracle is not None and not (oracle / "triton.sh").exists():
        sys.exit(f"{oracle} holds no triton.sh")
    options = Options(
        quick=arguments.quick,
        oracle=None if oracle is None else oracle.resolve(),
        port_base=arguments.port_base,
        protocols=tuple(arguments.protocols),
        concurrency=tuple(arguments.concurrency),
        rounds=arguments.rounds,
        requests=arguments.requests,
    )
    for name in arguments.names or _BY_DEFAULT:
        print(f"{name}: {BENCHMARKS[name]}", flush=True)
        if name in _NEED_ORACLE and oracle is None:
            print("  not run: no reference server; give --oracle FOLDER (it must hold triton.sh and compare.py)")
            continue
        importlib.import_module(f"benchmarks.{name}").run(options)


if __name__ == "__main__":
    main()
