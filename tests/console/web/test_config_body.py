"""The config form loses nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from console.web.config_body import body_of, field_of, groups_of, initial_of
from console.web.forms.configs import PATHS, ConfigForm

NAMES = st.text(alphabet="abcdefgh_", min_size=1, max_size=8)
GROUP = st.fixed_dictionaries(
    {
        "count": st.integers(1, 9),
        "kind": st.sampled_from(["KIND_CPU", "KIND_GPU"]),
        "gpus": st.lists(st.integers(0, 7)),
    },
    optional={"name": NAMES, "passive": st.booleans()},
)
BATCHING = st.fixed_dictionaries(
    {
        "preferred_batch_size": st.lists(st.integers(1, 64), max_size=4),
        "max_queue_delay_microseconds": st.integers(0, 10**6),
        "preserve_ordering": st.booleans(),
    },
    optional={"priority_levels": st.integers(1, 4), "default_priority_level": st.integers(1, 4)},
)
BODY = st.fixed_dictionaries(
    {"max_batch_size": st.integers(0, 256), "instance_group": st.lists(GROUP, max_size=3), "name": NAMES},
    optional={
        "dynamic_batching": BATCHING,
        "response_cache": st.just({"enable": True}),
        "parameters": st.dictionaries(NAMES, st.fixed_dictionaries({"string_value": NAMES}), max_size=3),
        "backend": NAMES,
    },
)


def posted(body: dict[str, Any]) -> dict[str, str]:
    """What a browser sends when nothing was touched."""
    data = {}
    for name, value in initial_of(body).items():
        if value is not False:
            data[name] = "on" if value is True else str(value)
    for number, row in enumerate(groups_of(body)):
        data |= {f"group-{number}-{key}": str(value) for key, value in row.items()}
    return data


@given(BODY)
def test_an_untouched_form_means_the_same_document(body: dict[str, Any]) -> None:
    form = ConfigForm(body, posted(body))
    assert form.is_valid(), form.errors
    assert form.body() == body


def test_switching_batching_off_drops_it_and_keeps_the_rest() -> None:
    body = {"name": "finch", "max_batch_size": 8, "dynamic_batching": {"priority_levels": 2}, "backend": "onnxruntime"}
    data = posted(body)
    del data["dynamic_batching"]
    form = ConfigForm(body, data)
    assert form.is_valid()
    assert form.body() == {"name": "finch", "max_batch_size": 8, "backend": "onnxruntime", "instance_group": []}


def test_every_contract_path_of_the_form_leads_back_to_its_field() -> None:
    for name, path in PATHS.items():
        assert field_of(path) == name, path
    assert field_of("dynamic_batching.preferred_batch_size[1]") == "preferred_batch_size"
    assert field_of("instance_group[0].count") == "instance_group"
    assert field_of("input[0].dims") == "advanced"
    assert field_of("") == ""


def test_removing_a_group_keeps_the_others_as_they_are() -> None:
    body = {"instance_group": [{"count": 1, "kind": "KIND_CPU", "gpus": [], "name": "a"}]}
    values = {**initial_of(body), "advanced": {}, "preferred_batch_size": [], "max_batch_size": 0}
    assert body_of(body, values, [])["instance_group"] == []
    assert json.loads(initial_of(body)["advanced"]) == {}
