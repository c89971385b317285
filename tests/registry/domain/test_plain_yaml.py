"""YAML of strangers."""

from __future__ import annotations

import pytest

from registry.domain.plain_yaml import UnreadableYaml, read_plain


def test_values_are_read() -> None:
    assert read_plain("license: mit\ntags: [a, b]\n") == {"license": "mit", "tags": ["a", "b"]}


@pytest.mark.parametrize(
    "text",
    ["a: !!python/object/apply:os.system ['true']", "a: [", "[" * 20_000, "a: &a {b: 1}\nc: {<<: *a}", "\0"],
    ids=["object", "open", "deep", "alias", "nul"],
)
def test_what_does_more_is_refused(text: str) -> None:
    with pytest.raises(UnreadableYaml):
        read_plain(text)


def test_merges_do_not_unfold() -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)]
    with pytest.raises(UnreadableYaml):
        read_plain("\n".join(lines))
