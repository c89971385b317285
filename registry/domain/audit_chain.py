"""The hash chain of the audit log: what a seal is made of, and whether lines hold and continue each other.

``python -m registry.domain.audit_chain < export.jsonl`` verifies an export without a server or a database: it prints
one line a chain and ends with status 1 when one does not hold. Nothing of it needs Django.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from registry.domain.texts import gettext as _

GENESIS = "0" * 64
"""What the first seal of a chain continues."""

SITE = "site"
"""The chain of events that belong to no project. The others bear the id of their project."""

SEALED_FIELDS = (
    "chain",
    "sequence",
    "previous",
    "id",
    "created_at",
    "project",
    "actor",
    "actor_id",
    "token_id",
    "ip",
    "request_id",
    "action",
    "object_type",
    "object_id",
    "object_label",
    "before",
    "after",
)
"""What a seal covers, in the order of an exported line; ``hash`` follows."""


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Result of a verification.

    ``bad_sequence`` is the first seal that does not hold, None when all do. ``first`` is the first one that was seen
    (0: none was). ``gaps`` counts places where lines were left out: each line holds by itself, but what is missing
    may have been filtered or taken away.
    """

    chain: str
    ok: bool
    checked: int
    bad_sequence: int | None = None
    problem: str = ""
    first: int = 1
    gaps: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing from the first event on."""
        return self.ok and self.first == 1 and not self.gaps


def seal_hash(line: Mapping[str, Any]) -> str:
    """Return the SHA-256 over everything that a line says, its place, and the hash before it.

    JSON columns keep numbers exactly, so sorted keys are canonical enough for values that come from them.
    """
    document = {name: line[name] for name in SEALED_FIELDS}
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class ChainVerifier:
    """Takes the lines of one chain by rising sequence and says whether they hold. Memory does not grow."""

    def __init__(self, chain: str, *, allow_gaps: bool = False) -> None:
        self._chain = chain
        self._allow_gaps = allow_gaps
        self._previous = GENESIS
        self._expected = 1
        self._first = self._gaps = self._checked = 0
        self._bad: int | None = None
        self._problem = ""

    def take(self, line: Mapping[str, Any]) -> bool:
        """Hold one line against its hash and the line before it; return whether all are well so far."""
        if self._bad is not None:
            return False
        sequence = line["sequence"]
        problem = self._look(line, sequence)
        if problem:
            self._bad, self._problem = sequence, problem
            return False
        self._first = self._first or sequence
        self._previous, self._expected, self._checked = line["hash"], sequence + 1, self._checked + 1
        return True

    def report(self) -> ChainReport:
        """Return what was found."""
        return ChainReport(
            self._chain, self._bad is None, self._checked, self._bad, self._problem, self._first, self._gaps
        )

    def _look(self, line: Mapping[str, Any], sequence: int) -> str:
        if sequence < self._expected:
            return _("it comes twice, or out of its order")
        if sequence > self._expected:
            if not self._allow_gaps:
                return _("seal %(number)s is missing") % {"number": self._expected}
            self._gaps += bool(self._checked)
        elif line["previous"] != self._previous:
            return _("it does not continue the seal before it")
        if line["chain"] != self._chain or self._chain != (SITE if line["project"] == "None" else line["project"]):
            return _("its event belongs to another chain")
        if line["hash"] != seal_hash(line):
            return _("its event was changed")
        return ""


def verify_lines(lines: Iterable[Mapping[str, Any]]) -> list[ChainReport]:
    """Verify exported lines of any number of chains; lines without a sequence are not sealed yet and are left out."""
    chains: dict[str, ChainVerifier] = {}
    for line in lines:
        if line["sequence"] is None:
            continue
        chain = str(line["chain"])
        if chain not in chains:
            chains[chain] = ChainVerifier(chain, allow_gaps=True)
        chains[chain].take(line)
    return [chains[chain].report() for chain in sorted(chains)]


def describe(report: ChainReport) -> str:
    """Return one line about a chain for people."""
    if not report.ok:
        facts = {"chain": report.chain, "sequence": report.bad_sequence, "problem": report.problem}
        return _("%(chain)s: BROKEN at %(sequence)s: %(problem)s") % facts
    facts = {"chain": report.chain, "count": report.checked}
    if report.is_whole:
        return _("%(chain)s: %(count)s events, whole") % facts
    return _("%(chain)s: %(count)s events hold; it is an excerpt, others are not in it") % facts


def _main(lines: Iterable[bytes]) -> int:
    unsealed = 0

    def read() -> Iterator[Mapping[str, Any]]:
        nonlocal unsealed
        for line in lines:
            if line.strip():
                document = json.loads(line)
                unsealed += document["sequence"] is None
                yield document

    try:
        reports = verify_lines(read())
    except (ValueError, KeyError, TypeError) as error:
        print(_("This is no export of an audit log: %(why)s") % {"why": f"{type(error).__name__}: {error}"})
        return 2
    for report in reports:
        print(describe(report))
    if unsealed or not reports:
        print(_("%(count)s events are not sealed: nothing is proven about them") % {"count": unsealed})
    return 0 if all(report.ok for report in reports) else 1


if __name__ == "__main__":
    sys.exit(_main(sys.stdin.buffer))
