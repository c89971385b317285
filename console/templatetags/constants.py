"""Tags whose text is the same for every request are written out when a template is compiled, not when it is rendered.

A page has some three hundred of them. Translated text is such text while there is one language to translate to; an
address is remembered by what it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.template import Context, Library, Node
from django.template.base import Parser, TextNode, Token
from django.template.defaulttags import URLNode
from django.template.defaulttags import url as compile_url
from django.templatetags.i18n import do_translate
from django.templatetags.static import do_static
from django.urls import NoReverseMatch, get_urlconf, reverse
from django.utils.html import conditional_escape

from console.templatetags.flotilla import register as flotilla_tags

register = Library()
Compile = Callable[[Parser, Token], Node]

_TEXT = re.compile(r'"[^"]*"|\'[^\']*\'')


def _written_out(compile_tag: Compile) -> Compile:
    """Return a compile function that writes a tag out when all that it is given are texts."""

    def compiled(parser: Parser, token: Token) -> Node:
        given = token.split_contents()[1:]
        node = compile_tag(parser, token)
        return TextNode(node.render(Context())) if all(map(_TEXT.fullmatch, given)) else node

    return compiled


_translate: Compile = do_translate if settings.USE_I18N else _written_out(do_translate)
register.tag("trans", _translate)
register.tag("translate", _translate)
register.tag("static", _written_out(do_static))
register.tag("icon", _written_out(flotilla_tags.tags["icon"]))


@lru_cache(maxsize=4096)
def _address(urlconf: str | None, name: str, args: tuple[str, ...], is_escaped: bool) -> str:
    found = reverse(name, urlconf, args)
    return str(conditional_escape(found)) if is_escaped else found


class RememberedUrlNode(URLNode):
    """``{% url %}`` of a name and positions."""

    def render(self, context: Context) -> str:
        """Return the address, or put it under a name; empty there when there is none."""
        args = tuple(str(arg.resolve(context)) for arg in self.args)
        try:
            address = _address(get_urlconf(), self.view_name.resolve(context), args, context.autoescape)
        except NoReverseMatch:
            if self.asvar is None:
                raise
            address = ""
        if self.asvar is None:
            return address
        context[self.asvar] = address
        return ""


@register.tag("url")
def address(parser: Parser, token: Token) -> Any:
    """Compile ``{% url %}`` as Django does."""
    node = compile_url(parser, token)
    return node if node.kwargs else RememberedUrlNode(node.view_name, node.args, node.kwargs, node.asvar)
