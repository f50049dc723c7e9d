"""How a model declares its inputs and outputs: Model, the decorator model, and their declarations."""

from __future__ import annotations

import inspect
import json
import typing
from typing import Any, Callable, Mapping, Sequence

from shoal._pb_config import ModelConfig
from shoal._spec import Input, Output, Spec


class Model:
    """A model: declare inputs and outputs, and write predict.

        class Mean(shoal.Model):
            x = shoal.Input("float32", [-1])
            mean = shoal.Output("float32")

            def load(self):
                ...  # once, before the first request

            def predict(self, x):
                return x.mean(axis=1)

    The server gathers requests into batches: every array that predict gets and
    gives has one row per row of the batch along its first axis. predict's
    arguments are inputs by their names; a single argument of another name, such
    as `batch`, gets all of them as a shoal.Batch. It returns the output's array,
    a tuple of arrays in the order of the outputs, or a dict by name.
    """

    max_batch: int = 32
    """The most rows that predict gets at once; 0 calls it for each request, without the batch axis."""
    instances: int = 1
    """How many copies of the model run concurrently, each in its own process."""
    gpus: Sequence[int] = ()
    """The GPUs that instances run on; empty is the CPU."""
    max_delay: float = 0.0
    """How long a request may wait for others to join its batch, in seconds; with 0 it starts when an instance is free."""

    context: Context
    """Where the model runs; set before load."""

    def load(self) -> None:
        """Loads what predict needs. It is called once, before the first request."""

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs of a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no predict")

    def close(self) -> None:
        """Frees what load took. It is called when the model is unloaded."""


class Context:
    """Where an instance runs."""

    def __init__(self, name: str, version: int, folder: str, instance: str, device: str, config: dict[str, Any]):
        self.name = name
        self.version = version
        self.folder = folder
        self.instance = instance
        self.device = device
        self.config = config

    def __repr__(self) -> str:
        return f"<shoal.Context of {self.instance} on {self.device}>"


class Declaration:
    """What a class or a function declares about itself."""

    def __init__(self, label: str, make: Callable[[], Any], inputs: dict[str, Input], outputs: dict[str, Output],
                 max_batch: int, instances: int, gpus: Sequence[int], max_delay: float):  # fmt: skip
        if not inputs or not outputs:
            side = "inputs" if not inputs else "outputs"
            raise TypeError(
                f"{label} declares no {side}; write them as class attributes, x = shoal.{side.title()[:-1]}('float32', [-1]), "
                f"or for a function with @shoal.model(inputs=..., outputs=...)"
            )
        for what, value in (("max_batch", max_batch), ("instances", instances)):
            if not isinstance(value, int) or value < (0 if what == "max_batch" else 1):
                raise ValueError(f"{label}: {what} is {value!r}, want a whole number from {0 if what == 'max_batch' else 1} on")
        self.label = label
        self.make = make
        self.inputs = inputs
        self.outputs = outputs
        self.max_batch = max_batch
        self.instances = instances
        self.gpus = list(gpus)
        self.max_delay = max_delay

    def config(self) -> dict[str, Any]:
        """The declaration as a model configuration."""
        group: dict[str, Any] = {"count": self.instances, "kind": "KIND_GPU" if self.gpus else "KIND_CPU"}
        if self.gpus:
            group["gpus"] = self.gpus
        config: dict[str, Any] = {
            "backend": "python",
            "max_batch_size": self.max_batch,
            "input": [s.config() for s in self.inputs.values()],
            "output": [s.config() for s in self.outputs.values()],
            "instance_group": [group],
        }
        if self.max_batch > 0:
            delay = round(self.max_delay * 1e6)
            config["dynamic_batching"] = {"max_queue_delay_microseconds": delay} if delay else {}
        return config

    def complete(self, config: dict[str, Any]) -> dict[str, Any]:
        """A configuration completed by the declaration; ValueError where it contradicts the declaration."""
        own = self.config()
        done = ModelConfig(json.dumps(config))
        for spec in own["input"]:
            done.add_input(spec)
        for spec in own["output"]:
            done.add_output(spec)
        result = done.as_dict()
        for side in ("input", "output"):
            extra = [t["name"] for t in result[side] if all(t["name"] != s["name"] for s in own[side])]
            if extra:
                raise ValueError(f"the configuration has the {side} {', '.join(extra)}, which {self.label} does not declare")
        if result["max_batch_size"] > 0 and self.max_batch == 0:
            raise ValueError(f"max_batch_size is {result['max_batch_size']}, but {self.label} says max_batch = 0: it is not batched")
        result["max_batch_size"] = result["max_batch_size"] or self.max_batch
        if not any(s in result for s in ("dynamic_batching", "sequence_batching", "ensemble_scheduling")):
            result.update({k: own[k] for k in ("dynamic_batching",) if k in own})
        result["instance_group"] = result.get("instance_group") or own["instance_group"]
        result["backend"] = "python"
        return result


def of_class(cls: type[Model]) -> Declaration:
    """The declaration of a subclass of Model, with inherited parts."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        members.update(vars(base))
    inputs = {s.name: s for s in members.values() if isinstance(s, Input)}
    outputs = {s.name: s for s in members.values() if isinstance(s, Output)}
    return Declaration(cls.__name__, cls, inputs, outputs, cls.max_batch, cls.instances, cls.gpus, cls.max_delay)


class _Function(Model):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]):
        self.predict = function  # type: ignore[method-assign]


def of_function(
    function: Callable[..., Any],
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    max_batch: int | None = None,
    instances: int | None = None,
    gpus: Sequence[int] = (),
    max_delay: float = 0.0,
) -> Declaration:
    """The declaration of a function: from the arguments here, else from Annotated hints."""
    label = getattr(function, "__name__", type(function).__name__)
    hinted_in, hinted_out = _hints(function)
    return Declaration(
        label,
        lambda: _Function(function),
        _specs(Input, inputs) or hinted_in,
        _specs(Output, outputs) or hinted_out,
        Model.max_batch if max_batch is None else max_batch,
        Model.instances if instances is None else instances,
        gpus,
        max_delay,
    )


def _specs(kind: type, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Specs by name, from Input and Output objects or from ("float32", [-1]) and "float32"."""
    specs = {}
    for name, value in (given or {}).items():
        if not isinstance(value, Spec):
            dtype, shape = value if isinstance(value, tuple) and len(value) == 2 else (value, ())
            value = kind(dtype, shape)
        value.name = value.name or name
        specs[value.name] = value
    return specs


def _hints(function: Callable[..., Any]) -> tuple[dict[str, Input], dict[str, Output]]:
    """Inputs and outputs in hints: x: Annotated[np.ndarray, shoal.Input("float32", [-1])]."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return {}, {}
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}
    for name, hint in hints.items():
        for spec in getattr(hint, "__metadata__", ()):
            if name == "return" and isinstance(spec, Output):
                spec.name = spec.name or (f"output{len(outputs)}" if outputs else "output")
                outputs[spec.name] = spec
            elif isinstance(spec, Input):
                spec.name = spec.name or name
                inputs[spec.name] = spec
    return inputs, outputs


def model(function: Callable[..., Any] | None = None, **declared: Any) -> Any:
    """Makes a function a model: @shoal.model(inputs={"x": ("float32", [-1])}, outputs={"mean": "float32"}).

    The other arguments are those of shoal.Model: max_batch, instances, gpus,
    max_delay. Types may also stand in the function's hints as
    Annotated[np.ndarray, shoal.Input("float32", [-1])]. The function itself
    stays as it is and can be called as before.
    """
    if function is None:
        return lambda f: model(f, **declared)
    function.__shoal__ = of_function(function, **declared)  # type: ignore[attr-defined]
    return function


def declaration(target: Any, **more: Any) -> Declaration:
    """The declaration of a class, an instance of one, or a function."""
    if inspect.isclass(target) and issubclass(target, Model):
        declared = of_class(target)
    elif isinstance(target, Model):
        declared = of_class(type(target))
        declared.make = lambda: target
    elif hasattr(target, "__shoal__"):
        declared = target.__shoal__
    elif callable(target):
        return of_function(target, **more)
    else:
        raise TypeError(f"{target!r} is no model: expected a subclass of shoal.Model, a function, or a file's path")
    for name, value in more.items():
        if value:
            raise TypeError(f"{declared.label} declares its own {name}; change it there")
    return declared
