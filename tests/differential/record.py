"""Record answers: python -m tests.differential.record [GROUP...] [-k TEXT] [--node] [--port PORT].

Without ``--node``: those of a real Triton (FLOTILLA_ORACLE names the folder with triton.sh). With it: those of the
node for the cases whose difference from Triton is noted; read them before you commit them.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys

from tests.differential import answers, servers
from tests.differential.cases import GROUPS
from tests.differential.comparing import differences
from tests.differential.playing import Player
from tests.differential.steps import Answer, Case


def main() -> None:
    """Play the chosen cases and write their answers down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[*GROUPS, []])
    parser.add_argument("-k", dest="text", default="", help="only cases whose id holds this")
    parser.add_argument("--node", action="store_true")
    parser.add_argument("--missing", action="store_true", help="only cases that nothing is recorded of")
    parser.add_argument("--port", type=int)
    arguments = parser.parse_args()
    failed = 0
    for group in arguments.groups or GROUPS:
        recorded = answers.read(group)
        chosen = [case for case in GROUPS[group] if arguments.text in case.id]
        if arguments.missing:
            chosen = [case for case in chosen if case.id not in recorded]
        if arguments.node:
            chosen = [case for case in chosen if case.difference]
        failed += _record(chosen, recorded, "node" if arguments.node else "triton", arguments.port)
        known = {case.id: case for case in GROUPS[group]}
        for id in [*recorded]:
            if id not in known:
                del recorded[id]
            elif not known[id].difference:
                recorded[id].pop("node", None)
        answers.write(group, recorded)
    sys.exit(1 if failed else 0)


def _record(cases: list[Case], recorded: answers.Recorded, side: str, port: int | None) -> int:
    failed = 0
    for profile in servers.PROFILES:
        chosen = [case for case in cases if case.profile == profile and not (case.fatal and side == "triton")]
        while chosen:
            # a server that a case has ended is followed by a new one
            played, wrong = _record_until_ended(profile, chosen, recorded, side, port)
            chosen, failed = chosen[played:], failed + wrong
    if side == "triton":
        for case in [case for case in cases if case.fatal]:
            recorded.setdefault(case.id, {})["triton"] = play_fatal(case, port)
    return failed


def _record_until_ended(
    profile: str, cases: list[Case], recorded: answers.Recorded, side: str, port: int | None
) -> tuple[int, int]:
    start = servers.node if side == "node" else servers.triton
    failed = 0
    with start(profile, port) as server, contextlib.closing(Player(server)) as player:
        for number, case in enumerate(cases, 1):
            got: list[Answer] = []
            try:
                got = player.play(case)
            except Exception as failure:
                failed += 1
                print(f"FAILED {case.id}: {failure!r:.300}", flush=True)
            else:
                _keep(case, got, recorded, side)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(3 if "closed" in str(got) or "UNAVAILABLE" in str(got) else 0.001)
            if not server.is_alive():
                print(f"the server ended in {case.id}: should the case say that it is fatal?", flush=True)
                return number, failed
    return len(cases), failed


def _keep(case: Case, got: list[Answer], recorded: answers.Recorded, side: str) -> None:
    before = recorded.setdefault(case.id, {}).get(side)
    if before is not None and before != got:
        print(f"changed {case.id}:", *(line[:600] for line in differences(before, got)), sep="\n    ", flush=True)
    recorded[case.id][side] = got


def play_fatal(case: Case, port: int | None = None) -> list[Answer]:
    """Return the answers of a server of its own that is not expected to survive; says so when it ended."""
    with servers.triton(case.profile, port) as server, contextlib.closing(Player(server)) as player:
        got: list[Answer] = []
        with contextlib.suppress(AssertionError, OSError):
            got = player.play(case)
        with contextlib.suppress(Exception):
            server.process.wait(10)
        return got if server.is_alive() else [{"server": "ended"}]


if __name__ == "__main__":
    main()
