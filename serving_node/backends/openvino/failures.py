"""OpenVINO's error texts as one sentence for a person. Pure."""

from __future__ import annotations

_PLACES = ("Exception from ", "Check '", "While validating node ", "[CPU] ")


def openvino_sentence(text: str) -> str:
    """Return the reason in a text of OpenVINO: the last of its lines, after places in its own sources."""
    lines = [line.strip() for line in text.splitlines()]
    reasons = [line for line in lines if line and not line.startswith(_PLACES)]
    return reasons[-1].rstrip(".!") if reasons else "no reason given"
