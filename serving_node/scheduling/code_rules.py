"""Whether a version may be loaded, and where it runs, by what of it is code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from serving_node.contract.code_formats import CodePart, code_list, code_parts
from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.parameters import parameter
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.backend import Host
from serving_node.core.errors import CodeRefusedError, InferenceError


def chosen_host(config: ModelConfig, directory: Path, *, code_permitted: bool) -> Host | None:
    """Return what must run a version, None when the backend is to choose.

    Args:
        config: with its backend.
        directory: the version's folder.
        code_permitted: whether versions that are code may be loaded.

    Raises:
        CodeRefusedError: some of the version is code, and that is not permitted.
        InferenceError: INVALID_ARG, 'flotilla.host' is no host or would let code into the node's own process.
    """
    parts = code_parts(_files(directory), config)
    if parts and not code_permitted:
        raise CodeRefusedError(ErrorCode.UNSUPPORTED, refusal(config.name, parts))
    try:
        text = parameter(config, "flotilla.host")
    except ContractError as error:
        raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error
    if not parts:
        return Host(str(text)) if text else None
    if text == Host.THREAD:
        sentence = f"model '{config.name}' is code and runs in worker processes only: {code_list(parts)}"
        raise InferenceError(ErrorCode.INVALID_ARG, f"{sentence}; 'flotilla.host' cannot be 'thread'")
    return Host.PROCESS


def refusal(model: str, parts: tuple[CodePart, ...]) -> str:
    """Return the sentence for a version whose code is not permitted."""
    return f"model '{model}' has code that is not permitted to run on this node: {code_list(parts)}"


def _files(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*"):
        if not path.is_dir():
            yield path.relative_to(directory).as_posix()
