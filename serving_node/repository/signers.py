"""Whether somebody who is believed signed the files of a unit, see ``signatures``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from serving_node.contract.control import Unit
from serving_node.contract.errors import ContractError
from serving_node.contract.signing import SIGNATURE_FILE, Signer
from signatures.verify import NotTrustedError, OtherDigestsError, UnverifiableError, differences, signed_files


class SignatureRefusedError(Exception):
    """The files of a unit are not as somebody who is believed signed them, or that cannot be told here."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def read_signers(path: Path) -> tuple[Signer, ...]:
    """Return those whom the node believes, whatever the control plane says: a JSON list of ``Signer``.

    Raises:
        ValueError: the file cannot be read, or nobody is in it.
    """
    try:
        found = tuple(Signer.from_json(one) for one in json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, ContractError) as error:
        raise ValueError(f"{path} is no list of signers: {error}") from error
    if not found:
        raise ValueError(f"{path} names nobody")
    return found


def check_signed(unit: Unit, path: Callable[[str], Path], believed: tuple[Signer, ...] = ()) -> None:
    """Verify the signature of a unit again: by those whom the node believes, else by whom the unit names.

    ``path`` returns where the content of a digest lies. The files have been hashed already.

    Raises:
        SignatureRefusedError: signature_missing, signature_invalid or signature_unverifiable.
    """
    signers = believed or ((unit.signer,) if unit.signer is not None else ())
    if not signers or not unit.files:  # an ensemble has no files
        return
    there = {file.path: file.sha256 for file in unit.files}
    signature = there.pop(SIGNATURE_FILE, None)
    if signature is None:
        raise SignatureRefusedError("signature_missing", f"the version has no {SIGNATURE_FILE}")
    try:
        signed = signed_files(path(signature), signers)
    except UnverifiableError as error:
        text = f"the version is signed, and this node cannot verify that: {error}"
        raise SignatureRefusedError("signature_unverifiable", text) from error
    except (NotTrustedError, OtherDigestsError) as error:
        raise SignatureRefusedError("signature_invalid", f"the signature proves nothing: {error}") from error
    if differences(signed.files, there):
        text = f"the files are not those that {signed.signer.name} signed"
        raise SignatureRefusedError("signature_invalid", text)
