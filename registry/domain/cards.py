"""What a model card may be. Pure."""

from __future__ import annotations

from registry.domain.texts import gettext as _

MAX_CARD_BYTES = 128 * 1024
README_NAMES = ("README.md", "readme.md", "Readme.md")


def card_problem(text: str) -> str:
    """Return why ``text`` cannot be a card, empty when it can."""
    if not text.strip():
        return _("The card is empty.")
    if "\0" in text:
        return _("The card holds a NUL character.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return _("The card holds half a character pair, which is no Unicode text.")
    if size > MAX_CARD_BYTES:
        return _("A card has at most %(limit)d KiB; this one has %(size)d.") % {
            "limit": MAX_CARD_BYTES // 1024,
            "size": -(-size // 1024),
        }
    return ""
