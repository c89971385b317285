"""Messages with a button that takes back what was done, where the console knows how."""

from __future__ import annotations

import json

from django.contrib import messages
from django.http import HttpRequest


def done(request: HttpRequest, text: str, address: str, **fields: str) -> None:
    """Say that something was done; the toast's Undo posts ``fields`` to ``address``.

    The post is judged as any other: by the permission of who presses the button, and by what is there then. Fields that
    say what the page has seen let it touch nothing that somebody else changed meanwhile.
    """
    undo = json.dumps({"address": address, "fields": fields}, separators=(",", ":"))
    messages.success(request, text, extra_tags=undo)
