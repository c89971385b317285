"""The config that ``auto_complete_config`` of a model completes, and the readers of configs that models use."""

from __future__ import annotations

import json
from typing import Any


class ModelConfig:
    """The config of a model while its own code completes it.

    Setters raise ValueError when the model contradicts what the config file says.
    """

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """Return the config as it stands, in the form that the config endpoint has."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch. It may not be less than what the file says."""
        configured = self._model_config["max_batch_size"]
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in {self._function()}"
                f" specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Use the dynamic batcher, if the file names no other scheduler."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but {self._function()}"
                    " tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Add an input: ``name``, ``data_type``, ``dims`` and perhaps ``optional``."""
        self._add(
            "input", input, ("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and 'optional'"
        )

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output: ``name``, ``data_type`` and ``dims``."""
        self._add("output", output, ("name", "data_type", "dims"), "'name', 'data_type' and 'dims'")

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Say whether the model is decoupled: ``{"decoupled": True}``."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in {self._function()} contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.setdefault("decoupled", wanted) != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._model_config['name']}',"
                f" which is already set to '{policy['decoupled']}'."
            )

    def _function(self) -> str:
        return f"auto-complete-config function for model '{self._model_config['name']}'"

    def _add(self, kind: str, tensor: dict[str, Any], allowed: tuple[str, ...], listed: str) -> None:
        if any(key not in allowed for key in tensor):
            raise ValueError(f"{kind} '{tensor['name']}' in {self._function()} contains property other than {listed}.")
        if "name" not in tensor:
            raise ValueError(f"{kind} in {self._function()} is missing 'name' property.")
        for key in ("data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{kind} '{tensor['name']}' in {self._function()} is missing '{key}' property.")
        for present in self._model_config[kind]:
            if present["name"] == tensor["name"]:
                self._check(kind, present, tensor)
                present.update(tensor)
                return
        self._model_config[kind].append(tensor)

    def _check(self, kind: str, present: dict[str, Any], tensor: dict[str, Any]) -> None:
        model, name = self._model_config["name"], tensor["name"]
        configured, provided = present["data_type"], tensor["data_type"]
        if configured not in ("TYPE_INVALID", provided):
            raise ValueError(
                f"unable to load model '{model}', configuration expects datatype {configured} for {kind} '{name}',"
                f" model provides {provided}"
            )
        if present["dims"] and present["dims"] != tensor["dims"]:
            raise ValueError(_differs(model, name, "dims", tensor["dims"], present["dims"]))
        if "optional" in present and "optional" in tensor and present["optional"] != tensor["optional"]:
            raise ValueError(_differs(model, name, "optional", tensor["optional"], present["optional"]))


def _differs(model: str, name: str, what: str, expected: Any, configured: Any) -> str:
    return (
        f"model '{model}', tensor '{name}': the model expects {what} {expected} but the model configuration specifies"
        f" {what} {configured}"
    )


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return an input of a config, None when there is none of that name."""
    return _named(model_config, "input", name)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return an output of a config, None when there is none of that name."""
    return _named(model_config, "output", name)


def _named(model_config: dict[str, Any], kind: str, name: str) -> dict[str, Any] | None:
    for properties in model_config.get(kind, ()):
        if properties["name"] == name:
            found: dict[str, Any] = properties
            return found
    return None


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Return whether a config makes the model decoupled."""
    if "model_transaction_policy" not in model_config:
        return False
    decoupled: bool = model_config["model_transaction_policy"]["decoupled"]
    return decoupled
