"""Licences as SPDX expressions, and what policies say of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.licences import (
    LicencePolicy,
    Treatment,
    UnreadableLicence,
    policy_problems,
    read_licence,
)

POLICY = LicencePolicy(allowed=("MIT", "BSD-*"), forbidden=("GPL-*", "AGPL-3.0"), unlisted=Treatment.REVIEW)
NAMES = st.sampled_from(["MIT", "BSD-3-Clause", "GPL-2.0-only", "Apache-2.0", "AGPL-3.0-only", "LicenseRef-acme"])
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(lambda one: f"({''.join(one)})"),
    max_leaves=8,  # two of them are still shorter than an expression may be
)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("apache-2.0", "Apache-2.0"),
        ("GPL-3.0", "GPL-3.0-only"),
        ("mit and (gpl-2.0+ with classpath-exception-2.0)", "MIT AND GPL-2.0-or-later WITH Classpath-exception-2.0"),
        ("openrail", "LicenseRef-openrail"),
        ("licenseref-Acme or MIT", "LicenseRef-Acme OR MIT"),
        ("bigscience-openrail-m", "LicenseRef-bigscience-openrail-m"),
    ],
)
def test_names_get_the_spelling_of_spdx(text: str, expression: str) -> None:
    licence = read_licence(text)
    assert licence is not None and licence.expression == expression
    assert all(name.startswith("LicenseRef-") and name in expression for name in licence.unknown)


@pytest.mark.parametrize("text", ["", " none ", "NOASSERTION", "other", "unknown"])
def test_nothing_is_stated(text: str) -> None:
    assert read_licence(text) is None


@pytest.mark.parametrize(
    "text", ["MIT OR", "all rights reserved", "MIT/Apache-2.0", "(" * 50, "gpl-3.0 WITH foo-bar", "x" * 501, "MIT\0"]
)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(UnreadableLicence):
        read_licence(text)


@pytest.mark.parametrize(
    ("text", "treatment", "names"),
    [
        ("MIT", "accept", ()),
        ("BSD-2-Clause", "accept", ()),
        ("GPL-3.0", "refuse", ("GPL-3.0-only",)),
        ("MIT OR GPL-2.0", "accept", ()),
        ("MIT AND GPL-2.0", "refuse", ("GPL-2.0-only",)),
        ("agpl-3.0", "refuse", ("AGPL-3.0-only",)),
        ("Apache-2.0", "review", ("Apache-2.0",)),
        ("MIT AND Apache-2.0 AND GPL-2.0", "refuse", ("GPL-2.0-only",)),
        ("Apache-2.0 OR GPL-2.0", "review", ("Apache-2.0",)),
        ("GPL-2.0 WITH Classpath-exception-2.0", "refuse", ("GPL-2.0-only WITH Classpath-exception-2.0",)),
    ],
)
def test_a_policy_judges(text: str, treatment: str, names: tuple[str, ...]) -> None:
    licence = read_licence(text)
    assert licence is not None
    ruling = POLICY.judge(licence)
    assert (ruling.treatment, ruling.names) == (treatment, names)


def test_a_licence_with_its_exception_is_listed_by_itself() -> None:
    policy = LicencePolicy(allowed=("GPL-2.0-only WITH Classpath-exception-2.0",), forbidden=("GPL-*",))
    found = [policy.judge(read_licence(text)).treatment for text in ("GPL-2.0 WITH Classpath-exception-2.0", "GPL-2.0")]  # type: ignore[arg-type]
    assert found == ["accept", "refuse"]


@given(EXPRESSIONS, EXPRESSIONS)
def test_or_is_the_mildest_and_and_the_severest(left: str, right: str) -> None:
    order = list(Treatment)

    def rank(text: str) -> int:
        licence = read_licence(text)
        assert licence is not None
        again = read_licence(licence.expression)
        assert again is not None and again.expression == licence.expression
        return order.index(POLICY.judge(licence).treatment)

    assert rank(f"({left}) OR ({right})") == min(rank(left), rank(right))
    assert rank(f"({left}) AND ({right})") == max(rank(left), rank(right))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    said = ""
    try:
        licence = read_licence(text)
        said = licence.expression if licence is not None else "nothing"
    except UnreadableLicence as error:
        said = str(error)
    assert said


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"allowed": ["foo"]}, "licence_policy.allowed[0]"),
        ({"forbidden": ["MIT", "a b"]}, "licence_policy.forbidden[1]"),
        ({"allowed": "MIT"}, "licence_policy.allowed"),
        ({"allowed": ["MIT"] * 201}, "licence_policy.allowed"),
        ({"allowed": [7]}, "licence_policy.allowed[0]"),
        ({"unlisted": "maybe"}, "licence_policy.unlisted"),
        ({"missing": None}, "licence_policy.missing"),
        ({"other": []}, "licence_policy.other"),
    ],
)
def test_what_is_no_policy(document: dict[str, Any], field: str) -> None:
    assert [problem["field"] for problem in policy_problems(document)] == [field]


def test_a_policy_is_the_same_after_it_was_kept() -> None:
    document = POLICY.to_json()
    assert not policy_problems(document) and LicencePolicy.from_json(document) == POLICY
    assert LicencePolicy.from_json({}) == LicencePolicy()
    own = {"allowed": ["LicenseRef-acme", "CC-BY-*", "GPL-2.0-only WITH Classpath-exception-2.0"]}
    assert not policy_problems(own)
