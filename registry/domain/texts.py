"""The words of the domain in the reader's language, without knowing who translates.

``registry.apps`` installs Django's translation when the control plane starts. Alone, the domain speaks English.
"""

from __future__ import annotations

from collections.abc import Callable

Translate = Callable[[str], str]

_translate: Translate | None = None


def install(translate: Translate) -> None:
    """Let ``gettext`` use ``translate`` from now on."""
    global _translate
    _translate = translate


def gettext(message: str) -> str:
    """Return the message in the language of the moment. Call it ``_``: that is how texts to translate are found."""
    return message if _translate is None else _translate(message)
