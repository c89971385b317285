"""Which bytes are a text that people read, and how much of it is shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from registry.domain.storable import storable_text

MAX_PREVIEW_BYTES = 64 * 1024
# Characters of one line that are shown: a file of one endless line would be no use to anybody.
MAX_LINE = 2000


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of a file. ``is_text`` False: it is none, and ``text`` is empty."""

    is_text: bool
    text: str = ""
    is_cut: bool = False


def preview(head: bytes, size: int) -> Preview:
    """Return what is shown of a file of ``size`` bytes that begins with ``head``.

    A text is UTF-8 without control characters but tab and line ends. The last character of ``head`` may be cut in half.
    """
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(head) or error.start < len(head) - 3 or len(head) >= size:
            return Preview(False)
        text = head[: error.start].decode("utf-8")
    if any(ord(character) < 32 and character not in "\t\n\r\f" for character in text):
        return Preview(False)
    lines = text.splitlines()
    is_cut = size > len(head) or any(len(line) > MAX_LINE for line in lines)
    return Preview(True, storable_text("\n".join(line[:MAX_LINE] for line in lines)), is_cut)
