"""The short codes with which a person lets a command line act for them. Pure.

Source of the exchange: RFC 8628 (device authorization grant); of the alphabet: its section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

# No vowels, so that no words appear, and nothing that is read for something else.
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
LENGTH = 8
VALID = timedelta(minutes=10)
POLL_SECONDS = 2
MAX_TOKEN_DAYS = 365


def new_code(choose: Callable[[str], str]) -> str:
    """Return a code like ``WDJB-MJHT``; ``choose`` picks one letter of a text."""
    letters = "".join(choose(ALPHABET) for _letter in range(LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


def read_code(text: str) -> str:
    """Return the code as it is kept, however it was typed (small letters, spaces, no dash); empty when it is none."""
    letters = "".join(letter for letter in text[:64].upper() if letter.isalnum())
    if len(letters) != LENGTH or any(letter not in ALPHABET for letter in letters):
        return ""
    return f"{letters[:4]}-{letters[4:]}"
