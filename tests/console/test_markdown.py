"""Markdown becomes HTML that runs nothing, loads nothing, and stays below the headings of the page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.templatetags.markdown import render_markdown

PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
     "[x](JaVaScRiPt:alert(1))",
     "[x](data:text/html;base64,AAAA)", f"[x]({PIXEL})", "![x](https://evil.example/p.png)", "![x](/logout)",
     "![x](data:image/svg+xml;base64,AAAA)", "<https://a.b/\"onclick=alert(1)>", "| a |\n|--:|\n| 1 |",
     "```x\" onclick=alert(1)\na\n```", "<style>*{}</style>", "![x\"onerror=alert(1)](https://a.b)"],
)  # fmt: skip
def test_nothing_runs_and_nothing_is_loaded(text: str) -> None:
    html = render_markdown(text)
    for tag in re.findall(r"<[^>]*>", html):
        assert not re.search(r"\son\w+\s*=|style|class|javascript:|data:|<script|<img|<iframe|<style", tag), html


@given(st.text(alphabet="<>\"'()[]!`#*_ \nahrefsconimgjv:/=&;data,", max_size=60))
def test_only_known_elements_come_out(text: str) -> None:
    names = set(re.findall(r"</?([a-z0-9]+)", render_markdown(text)))
    assert names <= {"a", "blockquote", "br", "code", "em", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre",
                     "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}  # fmt: skip


def test_what_people_write_is_shown() -> None:
    text = f"# Finch\n\n**small** ~~big~~ [paper](https://example.org/a) ![dot]({PIXEL})\n\n"
    text += "| a | b |\n|---|---|\n| 1 | 2 |"
    html = render_markdown(text)
    assert "<h3>Finch</h3>" in html and "<strong>small</strong>" in html and "<s>big</s>" in html
    assert '<a href="https://example.org/a" rel="noopener noreferrer nofollow">paper</a>' in html
    assert f'<img src="{PIXEL}" alt="dot">' in html and "<td>2</td>" in html
    assert '<a href="https://evil.example/p.png" rel="noopener noreferrer nofollow">far</a>' in render_markdown(
        "![far](https://evil.example/p.png)"
    )
