"""The page of samples: an example that fits, saving, a mistake, and being too late."""

from __future__ import annotations

import json

from registry.domain.sample_inputs import read_samples
from registry.models import SampleSet
from registry.services.sample_sets import samples_save
from tests.console.web.conftest import Browse, Served

PAGE = "/p/wren/models/finch/samples/"
VERSION = "/p/wren/models/finch/versions/1/samples/"
SAMPLES = [{"name": "one", "inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [5]}]}]


def test_samples_are_saved_for_a_version_and_for_all(served: Served, browse: Browse) -> None:
    bob = browse("bob")
    assert VERSION in bob.get("/p/wren/models/finch/versions/1/").text
    assert bob.post(VERSION, {"text": json.dumps(SAMPLES[0]), "seen": ""}).status_code == 302
    assert SampleSet.objects.get().version == served.version
    assert "&quot;INT8&quot;" in bob.get(VERSION).text and "bob" in bob.get(VERSION).text
    assert bob.post(PAGE, {"text": "[]", "seen": ""}).status_code == 302
    assert browse("vera").post(PAGE, {"text": json.dumps(SAMPLES), "seen": ""}).status_code == 422
    assert SampleSet.objects.count() == 1


def test_mistakes_are_told_and_the_text_stays(served: Served, browse: Browse) -> None:
    bob = browse("bob")
    answer = bob.post(PAGE, {"text": "{", "seen": ""})
    assert answer.status_code == 422 and "This is no JSON" in answer.text
    answer = bob.post(PAGE, {"text": '[{"inputs": []}]', "seen": ""})
    assert answer.status_code == 422 and "samples[0].inputs" in answer.text
    samples_save(model=served.version.model, samples=SAMPLES, actor=served.cast.actor("alice"))
    answer = bob.post(PAGE, {"text": "[]", "seen": ""})
    assert answer.status_code == 422 and "Saving once more replaces them." in answer.text
    assert bob.post(PAGE, {"text": "[]", "seen": SampleSet.objects.get().sha256}).status_code == 302
    assert not SampleSet.objects.exists()


def test_the_example_is_a_sample(served: Served, browse: Browse) -> None:
    text = browse("bob").get(PAGE).context["example"]
    assert read_samples(json.loads(text))
