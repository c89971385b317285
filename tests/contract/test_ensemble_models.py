"""Ensembles against the models that they use, held to what a real Triton says (recorded/model_configs.json)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, normalise, parse_json, parse_pbtxt
from serving_node.contract.model_config.ensemble_models import link_ensemble
from tests.contract.config_cases import BASES, ENSEMBLES, Case
from tests.contract.record_configs import RECORDED

ANSWERS: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
MODELS = {case.name: parse_json(ANSWERS[case.name]["config"]) for case in BASES}
# what the repository says: models and versions that are not there, circles
OF_THE_REPOSITORY = ("ensemble_unknown_model", "ensemble_unknown_version", "ensemble_itself")
CASES = [
    case for case in ENSEMBLES if "reason" not in ANSWERS[case.name] and case.name not in OF_THE_REPOSITORY
]  # fmt: skip


def models(config: ModelConfig) -> list[ModelConfig]:
    return [MODELS[step.model_name] for step in config.ensemble_scheduling.step]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_ensembles_fit_their_models_or_say_why_not(case: Case) -> None:
    assert case.config is not None
    config = parse_pbtxt(case.config)
    config.name = case.name
    answer = ANSWERS[case.name]
    if "config" in answer:
        decoupled = link_ensemble(normalise(config), models(config)).model_transaction_policy.decoupled
        assert decoupled is answer["config"]["model_transaction_policy"]["decoupled"]
        return
    with pytest.raises(ContractError) as caught:
        link_ensemble(normalise(config), models(config))
    assert answer["error"] == f"load failed for model '{case.name}': {caught.value.message}\n"


def decoupled(*steps: str) -> ModelConfig:
    return parse_pbtxt(
        'name: "e" platform: "ensemble" input { name: "A" data_type: TYPE_FP32 dims: 4 }'
        ' output { name: "Z" data_type: TYPE_FP32 dims: 4 }'
        f" ensemble_scheduling {{ {' '.join(steps)} }}"
    )


def step(model: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    maps = [("input_map", inputs), ("output_map", outputs)]
    entries = " ".join(f'{name} {{ key: "{k}" value: "{v}" }}' for name, map in maps for k, v in map.items())
    return f'step {{ model_name: "{model}" model_version: -1 {entries} }}'


def test_two_steps_that_multiply_responses_may_follow_but_not_meet() -> None:
    one = step("base_decoupled", {"IN": "A"}, {"OUT": "B"})
    chain = decoupled(one, step("base_decoupled", {"IN": "B"}, {"OUT": "Z"}))
    assert link_ensemble(chain, models(chain)).model_transaction_policy.decoupled
    other = step("base_decoupled", {"IN": "A"}, {"OUT": "C"})
    meeting = decoupled(one, other, step("base_two", {"IN": "B", "IN2": "C"}, {"OUT": "Z"}))
    with pytest.raises(ContractError, match="receives inputs originated from different decoupled models"):
        link_ensemble(meeting, models(meeting))
