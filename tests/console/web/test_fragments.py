"""Live fragments: what the stream's hub renders replaces exactly what the pages hold."""

from __future__ import annotations

import pytest

import console.web.fragments  # noqa: F401  # registers them
from console.live.fragments import fragments_of
from tests.console.web.conftest import Browse, Served


def topics(served: Served) -> dict[str, str]:
    return {
        f"version:{served.version.pk}": "version",
        f"deployment:{served.deployment.pk}": "deployment",
        f"approval:{served.approval.pk}": "approval",
        f"operation:{served.operation.pk}": "operation",
        f"node:{served.node.pk}": "node",
        f"model:{served.version.model_id}": "model",
        "fleet": "fleet",
    }


def test_fragments_carry_the_id_that_they_replace(served: Served) -> None:
    for topic in topics(served):
        topic_id, found = fragments_of(topic)
        assert found, topic
        for fragment in found:
            html = fragment.renderer(topic_id, "viewer")
            assert f'id="{fragment.target(topic_id).removeprefix("#")}"' in html


def test_the_page_of_a_topic_holds_its_fragment_and_follows_it(served: Served, browse: Browse) -> None:
    client = browse("alice")
    for topic, page in topics(served).items():
        html = client.get(served.paths()[page]).text
        topic_id, found = fragments_of(topic)
        held = [fragment for fragment in found if f'id="{fragment.target(topic_id).removeprefix("#")}"' in html]
        assert held, topic
        body = html.split("data-topics=")[1].split(">")[0]
        assert topic in body, topic


@pytest.mark.parametrize("scope", ["viewer", "admin"])
def test_fragments_hold_no_form_and_no_token(scope: str, served: Served) -> None:
    for topic in topics(served):
        topic_id, found = fragments_of(topic)
        for fragment in found:
            html = fragment.renderer(topic_id, scope)
            assert "<form" not in html
            assert "csrf" not in html


def test_fragments_of_things_that_are_gone_are_empty(db: None) -> None:
    gone = "01900000-0000-7000-8000-000000000000"
    for prefix in ("version", "deployment", "approval", "operation", "node", "model"):
        for fragment in fragments_of(f"{prefix}:{gone}")[1]:
            assert fragment.renderer(gone, "viewer") == ""
