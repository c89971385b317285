"""Which pieces of pages belong to which topics. Pages register here; the hub renders.

A topic is ``prefix:id`` (``deployment:0197...``) or a bare prefix (``fleet``). For every event of a topic the hub
calls each renderer of its prefix once per permission scope, in a thread, and sends
``{"target": "#<name>-<id>", "html": ...}`` (``"#<name>"`` for a topic without an id) to everybody in that scope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Renderer = Callable[[str, str], str]
"""``renderer(topic_id, scope) -> html``; an empty answer sends nothing. ``scope`` is the viewer's role in the project
(viewer ... admin), or the site role (none, operator, admin) for topics outside projects."""

_fragments: dict[str, list[Fragment]] = {}


@dataclass(frozen=True, slots=True)
class Fragment:
    """One piece of a page. ``name`` is the first part of the DOM id that it replaces."""

    prefix: str
    name: str
    renderer: Renderer

    def target(self, topic_id: str) -> str:
        """Return the CSS selector of what is replaced."""
        return f"#{self.name}-{topic_id}" if topic_id else f"#{self.name}"


def register(topic_prefix: str, name: str, renderer: Renderer) -> None:
    """Add a fragment; called once at import by the pages. Registering the same name again replaces it."""
    kept = [fragment for fragment in _fragments.get(topic_prefix, []) if fragment.name != name]
    _fragments[topic_prefix] = [*kept, Fragment(topic_prefix, name, renderer)]


def fragments_of(topic: str) -> tuple[str, list[Fragment]]:
    """Return the topic's id ("" without one) and the fragments of its prefix."""
    prefix, _, topic_id = topic.partition(":")
    return topic_id, list(_fragments.get(prefix, []))
