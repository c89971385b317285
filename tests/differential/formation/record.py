"""Record what a real Triton forms: python -m tests.differential.formation.record [-k TEXT] [--rounds N] [--port PORT].

FLOTILLA_ORACLE names the folder with triton.sh. A schedule is played three times in a row until all are alike, at
most ``--rounds`` times three; what never settles is no schedule: it is not written down, and its answers are shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.differential import servers
from tests.differential.formation.live import AT_ONCE, Formation, play, write_models
from tests.differential.formation.schedules import SCHEDULES, Schedule

_ALIKE = 3

Start = Callable[..., AbstractContextManager[servers.Server]]

RECORDED = Path(__file__).parent / "recorded.json"


def read() -> dict[str, Formation]:
    """Return what was recorded, by schedule."""
    answers: dict[str, Formation] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return answers


def write(recorded: dict[str, Formation]) -> None:
    """Write answers down, one line for each schedule."""
    lines = [f"  {json.dumps(id)}: {json.dumps(answer)}" for id, answer in recorded.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    """Play the chosen schedules and write down what was formed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="text", default="", help="only schedules whose id holds this")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--port", type=int)
    parser.add_argument("--missing", action="store_true", help="only schedules that nothing is recorded of")
    arguments = parser.parse_args()
    recorded = read()
    chosen = [one for one in SCHEDULES if arguments.text in one.id]
    if arguments.missing:
        chosen = [one for one in chosen if one.id not in recorded]
    answers = _settled(chosen, arguments.rounds, arguments.port)
    for schedule in chosen:
        if schedule.id in answers:
            _keep(schedule, answers[schedule.id], recorded)
    write({one.id: recorded[one.id] for one in SCHEDULES if one.id in recorded})
    sys.exit(0 if len(answers) == len(chosen) else 1)


def _settled(schedules: list[Schedule], rounds: int, port: int | None) -> dict[str, Formation]:
    """Return the answers that were given ``_ALIKE`` times, one after the other."""
    given: dict[str, list[Formation]] = {schedule.id: [] for schedule in schedules}
    answers: dict[str, Formation] = {}
    for round_ in range(rounds):
        waiting = [schedule for schedule in schedules if schedule.id not in answers]
        if not waiting:
            break
        for id, formed in played(waiting, _ALIKE, port=port).items():
            given[id] += formed
            if all(one == formed[0] for one in formed):
                answers[id] = formed[0]
        print(f"round {round_ + 1}: {len(answers)} of {len(schedules)} settled", flush=True)
    for id, all_of_them in given.items():
        if id not in answers or len(all_of_them) > _ALIKE:
            print("not steady" if id in answers else "NOT STEADY", id, *map(json.dumps, all_of_them), sep="\n    ")
    return answers


def played(
    schedules: list[Schedule], times: int = 1, start: Start = servers.triton, port: int | None = None
) -> dict[str, list[Formation]]:
    """Play schedules on servers of a kind; when one ends, which happens, the next goes on with the next group."""
    formed: dict[str, list[Formation]] = {}
    groups = [schedules[first : first + AT_ONCE] for first in range(0, len(schedules), AT_ONCE)]
    while groups:
        with start("explicit", port, lambda folder, _: write_models(folder, schedules)) as server:
            while groups:
                try:
                    formed |= play(server, groups.pop(0), times)
                except (OSError, EOFError) as failure:
                    print(f"the server is gone: {failure!r}", flush=True)
                    break
    return formed


def _keep(schedule: Schedule, answer: Formation, recorded: dict[str, Formation]) -> None:
    before = recorded.get(schedule.id)
    if before is not None and before != answer:
        print(f"changed {schedule.id}: {json.dumps(before)} -> {json.dumps(answer)}")
    recorded[schedule.id] = answer


if __name__ == "__main__":
    main()
