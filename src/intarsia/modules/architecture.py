"""Which network a module's tensors belong to."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.errors import ModelError
from intarsia.files import canonical, plain
from intarsia.models import MODELS, Model, build
from intarsia.specs import Spec


@dataclass(frozen=True)
class Entry:
    """What the network expects of one tensor of its state; `learned` is False for buffers."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    learned: bool


Plan = Mapping[str, Entry]


@dataclass(frozen=True)
class Architecture:
    """A model's name with all its settings, the input shape and the number of outputs.

    `model` is None for a stranger's factory, which must then be given wherever a network is made.
    Settings left out are filled in, so a later change of a default leaves old modules as they are.
    """

    model: Spec | None
    shape: tuple[int, ...]
    outputs: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.model is not None:
            object.__setattr__(self, "model", _complete(self.model))

    @classmethod
    def of(cls, model: Model, shape: tuple[int, ...], outputs: int) -> "Architecture":
        """The architecture of anything `build` takes."""
        named = isinstance(model, str | Mapping | Spec)
        return cls(MODELS.spec(model) if named else None, shape, outputs)  # type: ignore[arg-type]

    def __str__(self) -> str:
        inputs = "x".join(map(str, self.shape))
        return f"{self.model or 'custom model'}, inputs {inputs}, {self.outputs} outputs"

    def to_json(self) -> dict[str, Any]:
        model = self.model and {"name": self.model.name, "arguments": dict(self.model.arguments)}
        return {"model": model, "shape": list(self.shape), "outputs": self.outputs}

    def plan(self, factory: Model | None = None) -> Plan:
        """Name, shape and dtype of every tensor, found without giving any of them memory."""
        if self.model is not None:
            return _plan_of_named(canonical(self.to_json()))
        return _plan(self.skeleton(factory))

    def skeleton(self, factory: Model | None = None) -> nn.Module:
        """The network on the meta device: shapes without values, and no random number drawn."""
        model = self._model(factory)
        try:
            with torch.device("meta"):
                return build(model, self.shape, self.outputs)
        except Exception:
            if self.model is not None:
                raise
        # A stranger's code may need values while it builds.
        with torch.random.fork_rng(devices=[]):
            return build(model, self.shape, self.outputs).to("meta")

    def network(self, state: Mapping[str, Tensor], factory: Model | None = None) -> nn.Module:
        """The network holding copies of `state`, in evaluation mode."""
        network = self.skeleton(factory)
        network.load_state_dict({k: v.clone() for k, v in state.items()}, assign=True)
        tensors = [*network.parameters(), *network.buffers()]
        if any(t.is_meta for t in tensors):  # buffers that are not part of the state
            with torch.random.fork_rng(devices=[]):
                network = build(self._model(factory), self.shape, self.outputs)
            network.load_state_dict(dict(state))
        return network.eval()

    def _model(self, factory: Model | None) -> Model:
        model = self.model or factory
        if model is None:
            raise ModelError(
                "this module's network comes from a factory of your own, which files do not hold: "
                "give it, as in Module.load(path, model=factory)"
            )
        return model


@lru_cache(maxsize=64)
def _plan_of_named(text: str) -> Plan:
    value = json.loads(text)
    model = Spec(value["model"]["name"], value["model"]["arguments"])
    return _plan(Architecture(model, value["shape"], value["outputs"]).skeleton())


def _plan(skeleton: nn.Module) -> Plan:
    learned = {name for name, _ in skeleton.named_parameters(remove_duplicate=False)}
    return {
        name: Entry(tuple(tensor.shape), tensor.dtype, name in learned)
        for name, tensor in skeleton.state_dict().items()
    }


def _complete(spec: Spec) -> Spec:
    spec = MODELS.spec(spec)
    settings = {}
    for key, parameter in inspect.signature(MODELS[spec.name]).parameters.items():
        if key in MODELS.given:
            continue
        value = plain(spec.arguments.get(key, parameter.default), f"{spec.name}.{key}")
        if isinstance(value, int) and "Sequence" in str(parameter.annotation):
            value = [value]  # mlp(512) is mlp([512])
        settings[key] = value
    return Spec(spec.name, settings)
