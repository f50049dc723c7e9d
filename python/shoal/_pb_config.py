"""ModelConfig of triton_python_backend_utils: what auto_complete_config fills in."""

from __future__ import annotations

import json
from typing import Any


class ModelConfig:
    """A model's configuration, with checked ways to complete it."""

    def __init__(self, model_config: str):
        self._model_config: dict[str, Any] = json.loads(model_config)
        self._model_config.setdefault("name", "")
        self._model_config.setdefault("max_batch_size", 0)
        self._model_config.setdefault("input", [])
        self._model_config.setdefault("output", [])

    def as_dict(self) -> dict[str, Any]:
        """The configuration as it is now, to be read."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Sets the largest batch; ValueError when the configuration has a larger one."""
        current = self._model_config["max_batch_size"]
        if current > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {current}, but in auto-complete-config function for model "
                f"'{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Turns dynamic batching on; ValueError when the configuration has another scheduler."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but auto-complete-config function for "
                    f"model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Adds an input {name, data_type, dims[, optional]}, or completes the one of that name."""
        self._add("input", input, ("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, output: dict[str, Any]) -> None:
        """Adds an output {name, data_type, dims}, or completes the one of that name."""
        self._add("output", output, ("name", "data_type", "dims"), "'name', 'data_type' and 'dims'")

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Sets {decoupled: bool}; ValueError when the configuration has another value."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' contains "
                "property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', "
                f"which is already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = wanted

    @property
    def _name(self) -> str:
        return self._model_config["name"]

    def _add(self, side: str, tensor: dict[str, Any], known: tuple[str, ...], told: str) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        if any(key not in known for key in tensor):
            raise ValueError(f"{side} '{tensor.get('name', '')}' {where} contains property other than {told}.")
        for key in ("name", "data_type", "dims"):
            if key not in tensor:
                whose = f" '{tensor['name']}'" if "name" in tensor else ""
                raise ValueError(f"{side}{whose} {where} is missing '{key}' property.")
        for current in self._model_config[side]:
            if current["name"] == tensor["name"]:
                self._agree(side, current, tensor)
                current.update(tensor)
                return
        self._model_config[side].append(tensor)

    def _agree(self, side: str, current: dict[str, Any], tensor: dict[str, Any]) -> None:
        """Refuses a tensor that differs from the configuration."""
        has = current.get("data_type", "TYPE_INVALID")
        if has not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {has} for {side} "
                f"'{tensor['name']}', model provides {tensor['data_type']}"
            )
        for key in ("dims", "optional"):
            if key == "dims" and not current.get(key):
                continue
            if key in current and key in tensor and current[key] != tensor[key]:
                raise ValueError(
                    f"model '{self._name}', tensor '{tensor['name']}': the model expects {key} {tensor[key]} "
                    f"but the model configuration specifies {key} {current[key]}"
                )
