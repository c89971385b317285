"""Markdown of people as HTML that is safe to show.

Two walls: the parser passes no HTML through, and what it makes is cleaned by a sanitiser with a short list of elements.
Links open outside with ``noopener noreferrer nofollow``; only https, http and mailto are links. Pictures are shown only
when they are in the text itself (data:); those of other hosts become links, so that opening a card tells no other host.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import nh3
from django import template
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

register = template.Library()

_ELEMENTS = {
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}, "pre": {"tabindex"}}
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
# The page has h1 and the panel h2.
_HEADING_SHIFT = 2


def _headings(token: Token) -> None:
    level = min(6, int(token.tag[1]) + _HEADING_SHIFT)
    token.tag = f"h{level}"


class _Renderer(RendererHTML):
    """HTML of CommonMark with headings below those of the page, and pictures of other hosts as links."""

    def render(self, tokens: Sequence[Token], options: Any, env: Any) -> str:
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                _headings(token)
            elif token.type in ("fence", "code_block"):
                token.attrs = {}
                token.info = ""
        return super().render(tokens, options, env)

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        source = str(token.attrs.get("src", ""))
        if _PICTURE.fullmatch(source):
            return super().image(tokens, idx, options, env)
        words = self.renderInlineAsText(token.children, options, env) or source
        return f'<a href="{escape(source)}">{escape(words)}</a>'


_parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable(["table", "strikethrough"])


def _attribute(element: str, name: str, value: str) -> str | None:
    is_data = value.lower().startswith("data:")
    is_wanted = bool(_PICTURE.fullmatch(value)) if name == "src" else not is_data
    return value if is_wanted else None


@functools.lru_cache(maxsize=64)
def render_markdown(text: str) -> str:
    """Return safe HTML of a Markdown text."""
    return nh3.clean(
        _parser.render(text),
        tags=_ELEMENTS,
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer nofollow",
    )


@register.filter
def markdown(text: str) -> SafeString:
    """Return safe HTML of a Markdown text, for templates."""
    return mark_safe(render_markdown(text))  # noqa: S308
