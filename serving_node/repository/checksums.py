"""The repository agent ``checksum``: files of a model must have the hashes that its config names. Blocks.

Source: Triton's checksum agent; parameters are ``MD5:<path in the model folder>`` with the hash in hexadecimal.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.repository.local import PollError

_HASHES = ("md5", "sha256")


def check_files(config: ModelConfig, folder: Path) -> None:
    """Do what the agents of a config ask for. No agent, nothing to do.

    Raises:
        PollError: a file is missing or has another hash; an agent or a kind of hash is unknown.
    """
    for agent in config.model_repository_agents.agents:
        if agent.name != "checksum":
            raise PollError(f"repository agent '{agent.name}' is not known here; there is 'checksum'")
        for key, expected in sorted(agent.parameters.items()):
            kind, colon, relative = key.partition(":")
            if not colon or kind.lower() not in _HASHES:
                raise PollError(f"unsupported hash type in '{key}'; it is MD5:<file> or SHA256:<file>")
            _check(folder, relative, kind.lower(), expected)


def _check(folder: Path, relative: str, kind: str, expected: str) -> None:
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise PollError(f"the file '{relative}' must stay within the model directory")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
    except OSError as error:
        raise PollError(f"cannot read '{relative}' to check its hash: {error.strerror}") from error
    if found != expected.strip().lower():
        raise PollError(f"Mismatched {kind.upper()} hash for file {relative}, expect: {expected}, got: {found}")
