"""Inputs and outputs of models that only code can tell: a scratch node completes their config as any node would."""

from __future__ import annotations

import dataclasses

from django.conf import settings
from django.utils.translation import gettext as _

from registry.models import ModelVersion
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, parse_json
from serving_node.contract.signature import ModelSignature
from workers.checks.config_check import CONFIG_FILE
from workers.checks.unopened import signature_in
from workers.checks.verdicts import NeverRun, VersionRejected, check
from workers.locks.leases import Lease
from workers.sandbox import SandboxUnavailable
from workers.scratch import PackagesMissing, ScratchFailed, Trial, is_missing, run_trial

DESCRIBED = frozenset({"pt2", "python"})
"""Formats of which a node learns by loading them; TorchScript and plain modules tell neither types nor shapes."""
DESCRIBED_ALONE = frozenset({"openvino"})
"""The same where no config names inputs and outputs; one that does may have other shapes than the file."""


class Undescribed(Exception):
    """Nothing was learned; the message says why, ``log`` is what node and model printed, if they ``ran``."""

    def __init__(self, message: str, *, log: str = "", ran: bool = False) -> None:
        super().__init__(message)
        self.log = log
        self.ran = ran


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What a node made of a version: its signature, and the config that it completed."""

    signature: ModelSignature
    config: ModelConfig
    log: str


def describe(version: ModelVersion, format: str, config: ModelConfig, lease: Lease) -> Description:
    """Let a scratch node complete the config of a version.

    A Python model is shown ``config``, which its code may add to; an exported program tells everything by itself.

    Raises:
        Undescribed: nothing could be run, or the node could not load it.
        LeaseLost: the operation was cancelled.
    """
    if not settings.SANDBOX:
        raise Undescribed(_("Nothing is run in a sandbox here (FLOTILLA_SANDBOX)."))
    shown = config if format == "python" else ModelConfig(backend=config.backend, platform=config.platform)
    try:
        report = run_trial(version, Trial(shown), lambda: lease.is_lost)
    except SandboxUnavailable as error:
        raise Undescribed(str(error)) from error
    except PackagesMissing as error:
        lease.check()
        raise Undescribed(str(error), log=error.log) from error
    except ScratchFailed as error:
        lease.check()
        raise Undescribed(str(error), log=error.log, ran=True) from error
    lease.check()
    if report.reason:
        text = _("A scratch node could not load it: %(reason)s") % {"reason": report.reason}
        raise Undescribed(text, log=report.log, ran=not is_missing(report.reason))
    try:
        completed = parse_json(report.config)
        if not completed.input or not completed.output:
            raise Undescribed(_("Its code names no inputs or no outputs."), log=report.log, ran=True)
        return Description(_signature(completed, format), completed, report.log)
    except ContractError as error:
        text = _("The scratch node made no good config: %(why)s") % {"why": error.message}
        raise Undescribed(text, log=report.log, ran=True) from error


def described_signature(
    version: ModelVersion, format: str, config: ModelConfig, lease: Lease, warnings: list[str]
) -> Description | None:
    """Return what a scratch node found out; None where that failed and ``config`` has to do, with a warning.

    Raises:
        VersionRejected: nothing was found out, and the config does not name inputs and outputs.
    """
    with check(version, "signature") as finding:
        try:
            description = describe(version, format, config, lease)
        except Undescribed as error:
            finding.log = error.log
            if not config.input or not config.output:
                text = _("Inputs and outputs are not known: %(why)s A %(name)s that names them would do.")
                words = {"why": _sentence(str(error)), "name": CONFIG_FILE}
                raise (VersionRejected if error.ran else NeverRun)(text % words) from error
            finding.evidence.update(signature_in(config).to_json())
            finding.warnings.append(_("As the config says, unseen: %(why)s") % {"why": error})
            warnings.extend(finding.warnings)
            return None
        finding.log = description.log
        finding.evidence.update(description.signature.to_json())
        finding.summary = _("As a node found them by loading it in the sandbox.")
        return description


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def filled_in(config: ModelConfig, completed: ModelConfig) -> ModelConfig:
    """Return a config with what it leaves open taken from a completed one: tensors, batching, transactions."""
    result = ModelConfig()
    result.CopyFrom(config)
    if result.input and result.output:
        return result
    result.max_batch_size = result.max_batch_size or completed.max_batch_size
    for side in ("input", "output"):
        if not getattr(result, side):
            getattr(result, side).extend(getattr(completed, side))
    if result.WhichOneof("scheduling_choice") is None and completed.HasField("dynamic_batching"):
        result.dynamic_batching.CopyFrom(completed.dynamic_batching)
    if completed.model_transaction_policy.decoupled:
        result.model_transaction_policy.decoupled = True
    return result


def _signature(completed: ModelConfig, format: str) -> ModelSignature:
    signature = signature_in(completed)
    # a model that does not batch, though each first dimension is dynamic
    has_rows = completed.max_batch_size > 0 or not signature.is_batchable
    return dataclasses.replace(signature, has_rows=has_rows, is_declared=format == "python")
