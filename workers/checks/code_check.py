"""Whether the project takes the code in a version, as far as its files and config tell."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.models import CodeFormats, ModelVersion, Project
from registry.selectors.code import code_files
from registry.selectors.configs import config_latest
from registry.services.code import code_sentence
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, detect_backend, parse_json
from workers.checks.verdicts import VersionRejected, check


def check_code(version: ModelVersion, paths: list[str], config: ModelConfig | None) -> None:
    """Note which files are code under ``config``, which becomes the model's first; None: under the newest of the model.

    Raises:
        VersionRejected: there are some, and the project does not allow code.
    """
    with check(version, "code") as finding:
        files = code_files(paths, config or _config(version, paths))
        finding.evidence["files"] = files
        project = Project.objects.get(models=version.model_id)
        problem = code_sentence(project, files)
        if problem:
            raise VersionRejected(problem, errors=[{"field": file["path"], "message": file["why"]} for file in files])
        finding.summary = _("No file of it is code.")
        if files:
            text = ngettext(
                "%(count)d file is code: nodes run it in processes of its own.",
                "%(count)d files are code: nodes run them in processes of their own.",
                len(files),
            )
            finding.summary = text % {"count": len(files)}
            if project.code_formats == CodeFormats.APPROVE:
                finding.summary += " " + _("Nobody runs it before an approval has named it.")


def _config(version: ModelVersion, paths: list[str]) -> ModelConfig:
    stored = config_latest(version.model)
    if stored is not None:
        return parse_json(stored.body)
    try:
        return detect_backend(ModelConfig(), paths, model_name=version.model.slug)
    except ContractError:
        return ModelConfig()  # the names of the files decide
