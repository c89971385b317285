"""The kinds of checks that a version can have: what each looks at, and for which formats. Pure.

A check is one row for a version and a kind; running it again overwrites the row. Whoever names kinds (required checks
of an environment, pages, documentation) takes them from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from registry.domain.texts import gettext as translate


def _(text: str) -> str:
    """Mark a text for translation, which happens when somebody reads it."""
    return text


class Cause(StrEnum):
    """When a check is run."""

    SUBMIT = "submit"
    """With every version, before it gets its number; fail rejects the version."""
    AFTER = "after"
    """Once a version is ready; its verdict changes nothing about the version itself."""


@dataclass(frozen=True, slots=True)
class CheckKind:
    """One kind. ``formats`` empty: all of them; else the values of ``ModelVersion.format`` that it applies to.

    ``title`` and ``meaning`` are English; ``label`` and ``explanation`` are in the language of the moment.
    ``is_advice``: no approval is bound to it, because it informs and never fails.
    ``is_repeatable`` False: what it judged came from outside and is not there to be judged again.
    ``can_begin_late``: a project may come to ask for it after the version was made.
    """

    name: str
    title: str
    meaning: str
    cause: Cause = Cause.SUBMIT
    formats: frozenset[str] = frozenset()
    is_advice: bool = False
    is_repeatable: bool = True
    can_begin_late: bool = False

    @property
    def label(self) -> str:
        """Return the title for a reader."""
        return translate(self.title)

    @property
    def explanation(self) -> str:
        """Return what it looks at, for a reader."""
        return translate(self.meaning)

    def applies_to(self, format: str) -> bool:
        """Return whether versions of a format can have this check."""
        return not self.formats or format in self.formats


def _kinds(*kinds: CheckKind) -> dict[str, CheckKind]:
    return {kind.name: kind for kind in kinds}


# In the order in which they run, which is the order on pages.
CHECK_KINDS = _kinds(
    CheckKind("files", _("Files"), _("Sizes and SHA-256 digests of what was uploaded, and good names.")),
    CheckKind(
        "layout",
        "Layout",
        "An archive is unpacked; a model folder or repository of Triton, an MLflow model and a .mar are taken apart.",
        is_repeatable=False,
    ),
    CheckKind(
        "size",
        _("Size"),
        _("All files together, the largest of them and how many there are, against the limits of project and site."),
        can_begin_late=True,
    ),
    CheckKind(
        "conversion",
        _("Conversion"),
        _("The file was made ONNX here, or the report of who did that names this very file."),
        is_repeatable=False,
    ),
    CheckKind(
        "signature_verification",
        _("Signed by"),
        _("Somebody whom the project trusts signed exactly these files."),
        can_begin_late=True,
    ),
    CheckKind("format", _("Format"), _("The model file is there, can be read and is what its name says.")),
    CheckKind(
        "licence",
        _("Licence"),
        _("What the uploader, the card, the model file and licence files state, against the project's policy."),
        can_begin_late=True,
    ),
    CheckKind(
        "pickle_scan",
        _("Pickle scan"),
        _("What unpickling its files would import. Harmful imports are refused; what cannot be read never passes."),
    ),
    CheckKind("runtime", _("Runtime"), _("The engine of the nodes knows its operators and versions.")),
    CheckKind("signature", _("Signature"), _("Names, data types and shapes of its inputs and outputs.")),
    CheckKind("config", _("Config"), _("The serving config agrees with the signature.")),
    CheckKind("code", _("Code"), _("Which files run as code, and whether the project allows that.")),
    CheckKind(
        "smoke",
        _("Smoke inference"),
        _("A scratch node in the sandbox loads it, and its answers have the types and shapes of the config."),
        Cause.AFTER,
    ),
    CheckKind(
        "latency",
        _("Latency profile"),
        _("Median and p99 of single requests and of full batches on the scratch node. It never fails: it informs."),
        Cause.AFTER,
        is_advice=True,
    ),
)


def check_kind(name: str) -> CheckKind | None:
    """Return the kind of that name, None for none."""
    return CHECK_KINDS.get(name)


def kinds_for(format: str) -> list[CheckKind]:
    """Return the kinds that apply to versions of a format, in order."""
    return [kind for kind in CHECK_KINDS.values() if kind.applies_to(format)]


def bound_result(kind: str, check_id: str, verdict: str) -> str | None:
    """Return what an approval is bound to of a check: its id, and a bad verdict; None for advice.

    A check that passes again, or ends while the approval is asked for, changes nothing. One that turns bad does.
    """
    known = CHECK_KINDS.get(kind)
    if known is not None and known.is_advice:
        return None
    return f"{check_id}:{verdict}" if verdict in ("fail", "error") else check_id


def unknown_kinds(names: Iterable[str]) -> list[str]:
    """Return the names that are no kind, sorted."""
    return sorted({name for name in names if name not in CHECK_KINDS})


def place(name: str) -> int:
    """Return where a kind stands in the order; kinds of other releases come last."""
    return list(CHECK_KINDS).index(name) if name in CHECK_KINDS else len(CHECK_KINDS)
