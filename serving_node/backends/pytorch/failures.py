"""PyTorch's error texts as one sentence for a person. Pure."""

from __future__ import annotations

import re

# what PyTorch puts before and after its reason: C++ sources, stacks, advice on debugging
_NOISE = re.compile(
    r"\s*(?:Exception raised from |CUDA kernel errors might be |For debugging consider |\nC\+\+ Capture)"
)
_PICKLE = re.compile(r"Weights only load failed|WeightsUnpickler error|pickle protocol")
_ARCHIVE = re.compile(r"PytorchStreamReader failed|central directory|not a ZIP archive|invalid header or archive")
_LAST_LINE = re.compile(r"^(?:[\w.]*(?:Error|Exception)): (.+)", re.MULTILINE | re.DOTALL)
_SPACES = re.compile(r"\s+")
_LONGEST = 600


def load_sentence(error: BaseException, filename: str, model: str) -> str:
    """Return why a model file cannot be loaded."""
    text = str(error)
    if _PICKLE.search(text):
        return (
            f"'{filename}' of model '{model}' holds pickled objects other than tensors, which are not loaded: save the"
            " weights alone, as safetensors or with torch.save(model.state_dict())"
        )
    if _ARCHIVE.search(text):
        return f"'{filename}' of model '{model}' is not a complete PyTorch file (truncated or another format)"
    return f"failed to load model '{model}': {_reason(error)}"


def run_sentence(error: BaseException) -> str:
    """Return why an execution failed, in the form of Triton's PyTorch backend."""
    return f"PyTorch execute failure: {_reason(error)}"


def _reason(error: BaseException) -> str:
    """Return the reason on one line: without stacks, paths and C++ sources."""
    text = str(error).strip()
    if "Traceback of TorchScript" in text:
        # TorchScript's own stack, then the line with the reason
        found = _LAST_LINE.search(text, text.rfind("HERE"))
        text = found.group(1) if found else text.rsplit("\n", 1)[-1]
    text = _NOISE.split(text, maxsplit=1)[0]
    reason = _SPACES.sub(" ", text).strip()
    if not reason or isinstance(error, KeyError | AttributeError | ImportError):
        reason = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}..."
