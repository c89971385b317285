"""Versions in formats that the worker does not open: code runs in the sandbox only, and engines are not here.

What can be told without opening is checked: the file that the backend wants is there and begins as such a file does.
"""

from __future__ import annotations

from pathlib import Path

from django.utils.translation import gettext as _

from registry.models import ModelVersion
from registry.selectors.configs import config_latest
from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, detect_backend, parse_json
from serving_node.contract.model_config.platforms import model_files
from serving_node.contract.signature import ModelSignature, TensorSignature
from workers.checks.config_check import CONFIG_FILE, read_uploaded
from workers.checks.formats import describe_content
from workers.checks.verdicts import VersionRejected, check

_READ_HERE = "onnxruntime"
ENSEMBLE = "ensemble"
"""Versions without a model file: their config names the models that they call."""
MODEL_FILES = ("model.pt2", "model.pt", "model.py", "model.xml", "model.plan")
"""Names by which a version without a config is known for another format than ONNX."""
# model file -> format, where the name of the backend says less
_TORCHSCRIPT = "torchscript"
_FORMATS = {"model.pt2": "pt2", "model.py": "pytorch", "model.pt": _TORCHSCRIPT}  # beside a module: its weights
# suffix -> how such a file begins; anything else may begin as it likes
_BEGINNINGS = {".pt2": b"PK\x03\x04", ".pt": b"PK\x03\x04", ".xml": b"<"}


def unopened_format(paths: list[str], uploaded: Path | None, version: ModelVersion) -> str | None:
    """Return the format of a version that is not opened here; None for ONNX, and where nothing tells another one."""
    try:
        config = _config(paths, uploaded, version)
    except VersionRejected:  # the config cannot be read, which is said where it is checked
        config = _config(paths, None, version)
    if config.HasField("ensemble_scheduling"):
        return ENSEMBLE
    backend = config.backend
    # OpenVINO reads ONNX files too; those are opened here.
    if backend in ("", _READ_HERE) or (backend == "openvino" and "model.onnx" in paths):
        return None
    return next((format for name, format in _FORMATS.items() if backend == "pytorch" and name in paths), backend)


def check_unopened(
    version: ModelVersion, format: str, heads: dict[str, Path], uploaded: Path | None, warnings: list[str]
) -> ModelConfig:
    """Return the config that it is known by. ``heads`` are local copies of files that may be the model.

    Raises:
        VersionRejected: the model file is missing or is something else.
    """
    with check(version, "format") as finding:
        config = _config(list(version.files.values_list("path", flat=True)), uploaded, version)
        finding.evidence.update(format=format, file=config.default_model_filename, backend=config.backend)
        _require_model_file(version, config, heads)
        finding.summary = _("A model for the backend %(backend)s.") % {"backend": config.backend}
        if format == ENSEMBLE:
            finding.summary = _("An ensemble of other models.")
        if format == _TORCHSCRIPT:
            finding.warnings.append(
                _("PyTorch has deprecated TorchScript: save the model with torch.export.save instead.")
            )
        warnings.extend(finding.warnings)
    return config


def declared_signature(version: ModelVersion, config: ModelConfig) -> ModelSignature:
    """Return inputs and outputs as the config has them, because nothing else tells.

    Raises:
        VersionRejected: the config does not name them.
    """
    with check(version, "signature") as finding:
        if not config.input or not config.output:
            raise VersionRejected(
                _("The files do not tell inputs and outputs: upload a %(name)s that names them.")
                % {"name": CONFIG_FILE}
            )
        signature = signature_in(config)
        finding.evidence.update(signature.to_json())
        finding.summary = _("As the config says.")
    return signature


def signature_in(config: ModelConfig) -> ModelSignature:
    """Return inputs and outputs as a config declares them, with the batch dimension that it implies.

    Raises:
        VersionRejected: a tensor has no data type.
    """
    batch = (-1,) if config.max_batch_size > 0 else ()
    try:
        inputs, outputs = (
            tuple(TensorSignature(one.name, wire_name(one.data_type), (*batch, *one.dims)) for one in tensors)
            for tensors in (config.input, config.output)
        )
    except ContractError as error:
        raise VersionRejected(_("An input or output of %(name)s has no data type.") % {"name": CONFIG_FILE}) from error
    return ModelSignature(inputs=inputs, outputs=outputs, is_declared=True)


def _config(paths: list[str], uploaded: Path | None, version: ModelVersion) -> ModelConfig:
    """Return the config of the model, else the uploaded one, else one that names only the backend, if that is known."""
    stored = config_latest(version.model)
    if stored is not None:
        return parse_json(stored.body)
    if uploaded is not None:
        return read_uploaded(uploaded, paths, version.model.slug)
    try:
        return detect_backend(ModelConfig(), [path for path in paths if "/" not in path], model_name="")
    except ContractError:
        return ModelConfig()


def _require_model_file(version: ModelVersion, config: ModelConfig, heads: dict[str, Path]) -> None:
    names = model_files(config)
    if not names:
        return  # a backend of another package; only that knows its files
    paths = list(version.files.values_list("path", flat=True))
    name = next((name for name in names if any(path == name or path.startswith(f"{name}/") for path in paths)), None)
    if name is None:
        raise VersionRejected(
            _("The backend %(backend)s looks for %(name)s, which is not among the files.")
            % {"backend": config.backend, "name": names[0]}
        )
    path = heads.get(name)
    beginning = _BEGINNINGS.get(Path(name).suffix)
    if path is None or beginning is None:
        return
    with path.open("rb") as file:
        head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n") if beginning == b"<" else file.read(64)
    if not head.startswith(beginning):
        what = describe_content(path) or _("something else")
        raise VersionRejected(_("%(name)s is not such a file: it is %(what)s.") % {"name": name, "what": what})
