"""Why a file cannot be converted."""

from __future__ import annotations

import importlib
from types import ModuleType


class ConversionFailed(Exception):
    """The message is one sentence for the person who asked."""


def require(module: str, purpose: str, install: str) -> ModuleType:
    """Import a library that only some conversions need.

    Raises:
        ConversionFailed: it is not installed; the sentence says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.partition(".")[0] != error.name.partition(".")[0]:
            raise
        raise ConversionFailed(f"{purpose} needs {module.partition('.')[0]}: pip install '{install}'.") from None


def first_sentence(error: BaseException) -> str:
    """Return what an error of a library says, in one line that is not too long."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "") or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def refused_samples(who: str, error: BaseException) -> ConversionFailed:
    """Return the error of a model that does not take the inputs that it was asked."""
    hint = "give others by --inputs, or draw others by --integers, --rows and --dynamic-size"
    return ConversionFailed(f"{who} refuses the samples ({first_sentence(error)}); {hint}.")
