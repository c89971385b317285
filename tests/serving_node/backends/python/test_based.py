"""Backends that are a model.py of the operator's. What such code sees was looked up on a real Triton."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving_node.backends.loader import Backends
from serving_node.core.errors import InferenceError
from serving_node.observability.families import to_text

from .conftest import Models

BACKEND = """
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils
from beside import WORD


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_STRING", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.family = pb_utils.MetricFamily("based", "", pb_utils.MetricFamily.GAUGE)
        self.metric = self.family.Metric({"model": args["model_name"]})
        self.seen = [__name__, __file__, pb_utils.get_model_dir(), args["model_repository"], WORD]

    def execute(self, requests):
        text = np.array([json.dumps(self.seen)], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mine = tmp_path / "backends" / "mine"
    mine.mkdir(parents=True)
    (mine / "model.py").write_text(BACKEND)
    (mine / "beside.py").write_text("WORD = 'beside'\n")
    return tmp_path / "backends"


async def test_models_of_a_backend_are_data_for_its_code(models: Models, folder: Path) -> None:
    models.backends = Backends({}, directory=folder)
    model = await models.load("raise ValueError('this is no code')", config='backend: "mine"')
    seen = json.loads((await models.ask(model, [b""], dtype="BYTES").array())[0])
    version = models.folder / "m" / "1"
    assert seen == ["model", str(folder / "mine" / "model.py"), str(version), str(version.parent), "beside"]
    assert to_text(models.backends.metric_families()) == b'# HELP based \n# TYPE based gauge\nbased{model="m"} 0\n'


@pytest.mark.parametrize("name", ["other", "..", "", "mine/../mine"])
async def test_other_names_are_unknown(models: Models, folder: Path, name: str) -> None:
    (folder.parent / "model.py").write_text(BACKEND)
    (folder / "model.py").write_text(BACKEND)
    with pytest.raises(InferenceError, match="unable to find backend library for backend"):
        Backends({}, directory=folder).get(name)


async def test_a_folder_cannot_replace_a_backend_of_the_node(models: Models, folder: Path) -> None:
    (folder / "identity").mkdir()
    (folder / "identity" / "model.py").write_text(BACKEND)
    assert Backends({}, directory=folder).get("identity").name == "identity"
    assert type(Backends({}, directory=folder).get("identity")) is type(Backends({}).get("identity"))
