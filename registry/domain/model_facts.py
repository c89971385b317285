"""What people say about a model: what it does, and where to read more. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from registry.domain.texts import gettext as _

# The usual names; others are taken too.
TASKS = (
    "audio-classification", "automatic-speech-recognition", "depth-estimation", "document-question-answering",
    "feature-extraction", "fill-mask", "image-classification", "image-segmentation", "image-to-image", "image-to-text",
    "object-detection", "question-answering", "recommendation", "reranking", "sentence-similarity", "summarization",
    "tabular-classification", "tabular-regression", "text-classification", "text-generation", "text-to-image",
    "text-to-speech", "time-series-forecasting", "token-classification", "translation", "video-classification",
    "visual-question-answering", "zero-shot-classification",
)  # fmt: skip
MAX_LINKS = 20
MAX_LABEL = 100
MAX_URL = 2000
_TASK = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


def task_problem(task: str) -> str:
    """Return why ``task`` names no task, empty when it does or is empty."""
    if not task or _TASK.fullmatch(task):
        return ""
    return _("A task is a name like text-classification: lower-case letters, digits and “-”, at most 64 characters.")


def link_problems(links: Sequence[Any]) -> list[dict[str, str]]:
    """Return what is wrong with links, as ``{"field", "message"}``. A link is a label and an https address."""
    if len(links) > MAX_LINKS:
        return [{"field": "links", "message": _("A model has at most %(limit)d links.") % {"limit": MAX_LINKS}}]
    found = ((f"links[{index}]", _link_problem(link)) for index, link in enumerate(links))
    return [{"field": field, "message": message} for field, message in found if message]


def _link_problem(link: Any) -> str:
    if not isinstance(link, Mapping) or set(link) != {"label", "url"}:
        return _("A link has a label and a url.")
    label, url = link["label"], link["url"]
    if not isinstance(label, str) or not label.strip() or len(label) > MAX_LABEL or not label.isprintable():
        return _("The label of a link has 1 to %(limit)d visible characters.") % {"limit": MAX_LABEL}
    return url_problem(url)


def url_problem(url: Any) -> str:
    """Return why ``url`` is no https address that a browser may open, empty when it is."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        host = parts.hostname if parts is not None else None
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme != "https" or not host or parts.username is not None:
        return _("An address begins with https:// and a host, and holds no user.")
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        return _("An address has at most %(limit)d characters, all of them visible ASCII.") % {"limit": MAX_URL}
    return ""
