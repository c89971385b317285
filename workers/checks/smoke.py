"""Checks that a scratch node makes: whether a version answers as its config promises, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.domain.measurements import Answers, Cell, cell_of, quantile
from registry.domain.sample_inputs import Sample, read_samples
from registry.models import ConfigRevision, ModelVersion
from registry.selectors.configs import config_latest
from registry.selectors.sample_sets import sample_set
from registry.services.code import code_problem
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, parse_json
from workers.checks.answers import answer_problems, answer_warnings
from workers.checks.parts import parts_of
from workers.checks.sample_files import samples_among
from workers.checks.samples import Asked, asked_of, made_up_requests, profile_rounds
from workers.checks.verdicts import CheckFailed, Finding, NotChecked, check
from workers.locks.leases import Lease
from workers.sandbox import SandboxUnavailable
from workers.scratch import (
    Answer,
    PackagesMissing,
    Part,
    Profile,
    Report,
    ScratchFailed,
    Trial,
    is_missing,
    run_trial,
)

SMOKE, LATENCY = "smoke", "latency"
_LOG_BYTES = 32768


def check_on_scratch_node(version: ModelVersion, kinds: Sequence[str], lease: Lease) -> None:
    """Make the checks ``kinds`` (smoke, latency) of a version under its model's newest config, with one scratch node.

    Raises:
        LeaseLost: the operation was cancelled or belongs to somebody else; the rows are left as they are.
    """
    trial = _Trial(version, kinds, lease)
    if SMOKE in kinds:
        _noted(trial.smoke)
    if LATENCY in kinds:
        _noted(trial.latency)


def _noted(make: Any) -> None:
    try:
        make()
    except CheckFailed:
        return  # its row says so, and nobody else needs to know


class _Trial:
    """One scratch node for all checks: made with the first, remembered with what it said."""

    def __init__(self, version: ModelVersion, kinds: Sequence[str], lease: Lease) -> None:
        self._version = version
        self._kinds = kinds
        self._lease = lease
        self._asked: list[Asked] = []
        self._parts: tuple[Part, ...] = ()
        self._report: Report | None = None

    def smoke(self) -> None:
        """Fail where the version does not load, does not answer, or answers something else than the config says."""
        with check(self._version, SMOKE) as finding:
            config = self._config(finding)
            report = self._node(config, finding)
            finding.evidence |= _loaded(report)
            finding.evidence["answers"] = [
                _evidence(asked, answer) for asked, answer in zip(self._asked, report.answers, strict=False)
            ]
            if report.reason:
                raise CheckFailed(_("A scratch node could not load it: %(reason)s") % {"reason": report.reason})
            for asked, answer in zip(self._asked, report.answers, strict=True):
                if problems := answer_problems(config, answer, asked.rows):
                    errors = [{"field": "output", "message": f"{asked.name}: {text}"} for text in problems]
                    raise CheckFailed(problems[0], errors=errors)
                finding.warnings += answer_warnings(answer)
            if not report.answers:
                finding.warnings.append(_("It loads; no request could be made up that is small enough to be sent."))
            finding.summary = _summary(report, sum(bool(asked.request.expected) for asked in self._asked))

    def latency(self) -> None:
        """Note how long requests take; what cannot be measured is a warning."""
        with check(self._version, LATENCY) as finding:
            report = self._node(self._config(finding), finding)
            if report.reason:
                finding.warnings.append(_("It could not be measured: %(reason)s") % {"reason": report.reason})
                return
            cells = [self._cell(report, place) for place in range(len(report.profile))]
            finding.evidence |= _loaded(report)
            finding.evidence["cells"] = [
                cell.to_json() | _stream_figures(profile) for cell, profile in zip(cells, report.profile, strict=True)
            ]
            unmeasured = [cell.error for cell in cells if not cell.requests]
            if unmeasured or not cells:
                reason = unmeasured[0] if unmeasured else _("its requests would be too large")
                finding.warnings.append(_("It could not be measured: %(reason)s") % {"reason": reason})
            finding.summary = " ".join(_sentence(cell) for cell in finding.evidence["cells"])

    def _cell(self, report: Report, place: int) -> Cell:
        profile = report.profile[place]
        seconds = max(sum(profile.latencies), 1e-6)
        blank = Cell(profile.batch, 1, 1, load_seconds=report.load_seconds, memory_bytes=report.peak_bytes)
        return cell_of(blank, Answers(seconds, profile.latencies, failures=profile.failures, refusal=profile.refusal))

    def _config(self, finding: Finding) -> ModelConfig:
        """Return the config to try it under. Raises NotChecked where that or the version cannot be tried here."""
        revision = config_latest(self._version.model)
        if revision is None:
            raise NotChecked(_("The model has no config to try it under."))
        finding.evidence["config"] = revision.number
        config = parse_json(revision.body)
        if problem := _obstacle(self._version, revision, config):
            raise NotChecked(problem)
        self._parts = parts_of(self._version, revision, _obstacle)
        if self._parts:
            finding.evidence["parts"] = [f"{part.name} v{part.version.number}" for part in self._parts]
        return config

    def _node(self, config: ModelConfig, finding: Finding) -> Report:
        if self._report is None:
            self._lease.report(10, _("Trying it on a scratch node"))
            try:
                self._report = self._tried(config, finding)
            except SandboxUnavailable as error:
                raise NotChecked(str(error)) from error
            except PackagesMissing as error:
                self._lease.check()
                finding.log = error.log[-_LOG_BYTES:]
                raise NotChecked(str(error)) from error
            except ScratchFailed as error:
                self._lease.check()
                finding.log = error.log[-_LOG_BYTES:]
                raise CheckFailed(str(error)) from error
            self._lease.check()
        finding.log = self._report.log[-_LOG_BYTES:]
        if self._report.reason and is_missing(self._report.reason):
            raise NotChecked(_("It could not be tried here: %(reason)s") % {"reason": self._report.reason})
        return self._report

    def _tried(self, config: ModelConfig, finding: Finding) -> Report:
        try:
            if SMOKE in self._kinds:
                samples, where = _samples(self._version)
                finding.evidence |= {"samples": where} if where else {}
                self._asked = [asked_of(sample) for sample in samples] or made_up_requests(config)
            profile = profile_rounds(config) if LATENCY in self._kinds else []
        except ContractError as error:
            raise NotChecked(_("No request can be made for this config: %(why)s") % {"why": error.message}) from error
        requests = tuple(asked.request for asked in self._asked)
        trial = Trial(config, requests, tuple(profile), self._parts)
        return run_trial(self._version, trial, lambda: self._lease.is_lost)


def _obstacle(version: ModelVersion, revision: ConfigRevision, config: ModelConfig) -> str:
    """Return why a version is not tried at all, empty when it is."""
    if not settings.SANDBOX:
        return _("Nothing is run in a sandbox here (FLOTILLA_SANDBOX).")
    if config.backend == "tensorrt":
        return _(
            "A TensorRT engine runs on a GPU of the kind that it was built for, and the sandbox has none: it is tried"
            " when a node loads it."
        )
    # what the project forbids is not run, not even here
    return code_problem(version, revision)


def _samples(version: ModelVersion) -> tuple[tuple[Sample, ...], str]:
    """Return what somebody gave to try a version with, and where: for the version, in its files, for the model.

    Raises:
        CheckFailed: it cannot be read.
    """
    stored = sample_set(version.model, version)
    if stored is not None:
        return read_samples(stored.samples), "version"
    if found := samples_among(version):
        return found, "files"
    stored = sample_set(version.model)
    return (read_samples(stored.samples), "model") if stored is not None else ((), "")


def _loaded(report: Report) -> dict[str, Any]:
    return {"load_seconds": report.load_seconds, "peak_memory_bytes": report.peak_bytes}


def _evidence(asked: Asked, answer: Answer) -> dict[str, Any]:
    outputs = [output.to_json() for output in answer.outputs]
    found = {"asked": asked.name, "milliseconds": answer.milliseconds, "error": answer.error, "outputs": outputs}
    if answer.stream is None:
        return found
    between = sorted(answer.stream.between_milliseconds)
    stream = {
        "answers": answer.stream.answers,
        "is_final": answer.stream.is_final,
        "first_milliseconds": answer.stream.first_milliseconds,
        "between_milliseconds_p50": quantile(between, 0.5) if between else None,
        "between_milliseconds_most": between[-1] if between else None,
    }
    others = [[output.to_json() for output in outputs] for outputs in answer.stream.other_outputs]
    return {**found, "stream": stream, **({"other_outputs": others} if others else {})}


def _summary(report: Report, compared: int) -> str:
    count = len(report.answers)
    streams = [answer.stream for answer in report.answers if answer.stream is not None]
    if streams:
        text = ngettext(
            "%(answers)d answers to %(count)d request are as the config says.",
            "%(answers)d answers to %(count)d requests are as the config says.",
            count,
        )
        summary = text % {"answers": sum(stream.answers for stream in streams), "count": count}
    else:
        text = ngettext("%(count)d answer is as the config says.", "%(count)d answers are as the config says.", count)
        summary = text % {"count": count}
    if not compared:
        return summary
    text = ngettext("%(count)d is as its sample expects.", "%(count)d are as their samples expect.", compared)
    return f"{summary} {text % {'count': compared}}"


def _stream_figures(profile: Profile) -> dict[str, Any]:
    """Return what a stream adds to a cell: answers to a request, and milliseconds to the first and between them."""
    if profile.stream is None or not profile.stream.counts:
        return {}
    found: dict[str, Any] = {"answers_p50": quantile(sorted(profile.stream.counts), 0.5)}
    for name, seconds in (("first", profile.stream.firsts), ("between", profile.stream.between)):
        ordered = sorted(seconds)
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            found[f"{name}_{label}_ms"] = round(quantile(ordered, share) * 1000, 3) if ordered else None
    return found


def _sentence(cell: dict[str, Any]) -> str:
    words = {"batch": cell["batch"], "p50": f"{cell['latency_p50_ms']:g}", "p99": f"{cell['latency_p99_ms']:g}"}
    text = _("Batch %(batch)d: median %(p50)s ms, p99 %(p99)s ms.")
    if cell.get("first_p50_ms") is None:
        return text % words
    words |= {"answers": cell["answers_p50"], "first": f"{cell['first_p50_ms']:g}"}
    text = _(
        "Batch %(batch)d: first of %(answers)d answers after %(first)s ms, the last after %(p50)s ms, p99 %(p99)s ms."
    )
    return text % words
