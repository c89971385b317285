"""Renders a fragment in a database thread."""

from __future__ import annotations

from console.live.fragments import Fragment
from console.middleware.database import in_database_thread


async def render_in_thread(fragment: Fragment, topic_id: str, scope: str) -> str:
    """Return the fragment's HTML for the topic and scope. What the renderer raises is the hub's to log."""
    return await in_database_thread(fragment.renderer, topic_id, scope)
