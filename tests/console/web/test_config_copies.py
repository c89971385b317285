"""Copying, going back and comparing configs on their page."""

from __future__ import annotations

from registry.models import ConfigRevision
from registry.services import configs
from tests.console.web.conftest import Browse, Served


def test_the_page_goes_back_copies_and_compares(served: Served, browse: Browse) -> None:
    served.cast.ready_version("wagtail", b"another")
    bob, address = browse("bob"), "/p/wren/models/finch/configs/"
    first = ConfigRevision.objects.get(model__slug="finch")
    body = {**first.body, "max_batch_size": 32}
    configs.config_create(model=first.model, body=body, actor=served.cast.actor("bob"))
    page = bob.get(f"{address}2/?against=1&as=text").text
    assert "+max_batch_size: 32" in page
    assert "config-revert" not in page
    assert "config-revert" in bob.get(f"{address}1/").text
    assert bob.post(f"{address}1/revert/")["Location"] == f"{address}3/"
    copied = bob.post(f"{address}2/copy/", {"to": "wagtail"})
    assert copied["Location"] == "/p/wren/models/wagtail/configs/2/"
    assert browse("vera").post(f"{address}1/revert/").status_code == 403
