"""Tags that are written out when a template is compiled say what they would say when it is rendered."""

from __future__ import annotations

import pytest
from django.template import Context, Template
from django.template.base import TextNode
from django.test import RequestFactory
from django.urls import NoReverseMatch, reverse

WRITTEN_OUT = (
    ('{% trans "Models & more" %}', "Models & more"),
    ('{% translate "100 % sure" %}', "100 % sure"),
    ("{% static 'icons.svg' %}", "/static/icons.svg"),
    ('{% icon "plus" %}', '<use href="/static/icons.svg#plus">'),
    ('{% icon "plus" "spin" %}', 'class="icon spin"'),
)


@pytest.mark.parametrize(("source", "wanted"), WRITTEN_OUT, ids=[str(number) for number in range(len(WRITTEN_OUT))])
def test_texts_are_written_out(source: str, wanted: str) -> None:
    template = Template(source)
    assert [type(node) for node in template.nodelist] == [TextNode]
    assert wanted in template.render(Context())


def test_what_depends_on_the_context_is_not() -> None:
    template = Template('{% trans name %}|{% trans "a" as b %}{{ b }}|{% static file %}|{% icon name|lower css %}')
    text = template.render(Context({"name": "<X>", "file": "a&b", "css": '"'}))
    assert text.startswith("&lt;X&gt;|a|/static/a%26b|") and "#&lt;x&gt;" in text and 'class="icon &quot;"' in text


@pytest.mark.parametrize("slug", ["wren", "o'brien"], ids=["plain", "quoted"])
def test_addresses_are_those_of_django(slug: str) -> None:
    request = RequestFactory().get("/")
    source = "{% url 'web:models' project %}|{% url 'web:models' project as found %}{{ found }}|{% url 'web:home' %}"
    for _turn in range(2):
        context = Context({"project": slug, "request": request})
        try:
            wanted = reverse("web:models", args=[slug])
        except NoReverseMatch:
            with pytest.raises(NoReverseMatch):
                Template(source).render(context)
        else:
            assert Template(source).render(context) == f"{wanted}|{wanted}|/"


def test_an_address_that_does_not_exist_is_an_error_or_nothing() -> None:
    with pytest.raises(NoReverseMatch):
        Template("{% url 'web:models' %}").render(Context())
    assert Template("{% url 'web:models' as found %}[{{ found }}]").render(Context()) == "[]"
