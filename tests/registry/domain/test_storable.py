from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from registry.domain.storable import storable, storable_text

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(documents)
def test_every_document_becomes_json_that_postgresql_takes(document: Any) -> None:
    text = json.dumps(storable(document), allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    text.encode()


@given(documents.filter(lambda document: document == storable(document)))
def test_what_can_be_stored_stays_as_it_is(document: Any) -> None:
    assert storable(storable(document)) == storable(document)


def test_what_cannot_be_stored_stays_visible() -> None:
    assert storable_text("a\0b\ud800") == "a\ufffdb\ufffd"
    assert storable({"x\0": [float("nan"), float("-inf"), ("\0",)]}) == {"x\ufffd": ["nan", "-inf", ["\ufffd"]]}
    assert storable([2**64, 2**64 - 1, -(2**63) - 1]) == ["0x10000000000000000", 2**64 - 1, "-0x8000000000000001"]
    assert storable({"fine": [1, 2.5, None, True, "ü"]}) == {"fine": [1, 2.5, None, True, "ü"]}
