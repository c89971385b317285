"""Which ensembles use which models."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.repository.dependencies import Dependencies
from serving_node.repository.model_folder import ModelId


def key(name: str) -> ModelId:
    return ModelId("", name)


def known(**ensembles: str) -> Dependencies:
    dependencies = Dependencies()
    for name, steps in ensembles.items():
        dependencies.put(key(name), steps.split())
    return dependencies


def names(models: list[ModelId]) -> list[str]:
    return [model.name for model in models]


def test_who_depends_on_a_model_through_others_too_is_found_in_order() -> None:
    dependencies = known(outer="inner b", inner="a a", other="c")
    assert names(dependencies.dependents(["a"])) == ["inner", "outer"]
    assert names(dependencies.dependents(["b", "c"])) == ["other", "outer"]
    assert dependencies.steps("inner") == ("a",)
    dependencies.drop(key("outer"))
    assert names(dependencies.users("inner")) == []


def test_a_circle_is_told_in_tritons_words() -> None:
    dependencies = known(d="f", f="g", g="d", itself="itself", fine="d")
    assert dependencies.circle(key("d")) == "circular dependency between ensembles: d -> ... -> g -> d"
    assert dependencies.circle(key("itself")).endswith("itself -> ... -> itself -> itself")
    assert dependencies.circle(key("fine")) == ""


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefxy"), max_size=3)))
def test_what_is_used_comes_first_unless_there_is_a_circle(graph: dict[str, list[str]]) -> None:
    dependencies = Dependencies()
    for name, steps in graph.items():
        dependencies.put(key(name), steps)
    models = [key(name) for name in "abcdefxy"]
    ordered = dependencies.in_order(models)
    assert sorted(ordered) == models
    if not any(dependencies.circle(key(name)) for name in graph):
        for name, steps in graph.items():
            assert all(ordered.index(key(step)) < ordered.index(key(name)) for step in steps)
