"""Modules joined by an operator; the parts are remembered, so add and remove are exact."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition.fit import check_fit, locate
from intarsia.composition.operators import OPERATORS, Operator
from intarsia.errors import CompositionError, FileError
from intarsia.models import Model
from intarsia.modules import Bank, Module, Predicting, file, header
from intarsia.modules.classifier import Inputs
from intarsia.specs import Spec

KIND = "intarsia-composition"


def compose(
    modules: Iterable[Module] | Bank, operator: str | Mapping[str, Any] | Spec = "sum"
) -> "Composition":
    """Join modules into one classifier without training: `sum` of weights, or `logits`."""
    return Composition(modules, operator)


class Composition(Predicting):
    """An nn.Module from raw inputs to logits that remembers its parts, sorted by name.

    `add` and `remove` change it in place and return it; `+` and `-` make a new one. The result
    depends on the parts alone, not on the order or the way they came in, to the last bit. Weights
    trained further inside a composition are not part of its modules and go at the next change.
    """

    def __init__(
        self, parts: Iterable[Module] | Bank, operator: str | Mapping[str, Any] | Spec = "sum"
    ) -> None:
        super().__init__()
        self.operator = OPERATORS.spec(operator)
        self.parts: tuple[Module, ...] = ()
        self._lay(parts)
        self.eval()

    def forward(self, x: Inputs) -> Tensor:
        if self._how.on == "weights":
            return self.laid[0](x)
        return self._how(logits=[part(x) for part in self.laid], **self.operator.arguments)

    def add(self, *modules: Module) -> "Composition":
        """Join more modules; the composition stays as it was if one does not fit."""
        self._lay((*self.parts, *modules))
        return self

    def remove(self, *keys: str | Module) -> "Composition":
        """Take modules out, by name, by the class they alone recognise, or themselves."""
        parts = list(self.parts)
        for key in keys:
            parts.remove(locate(parts, key))
        self._lay(parts)
        return self

    def __add__(self, module: Module) -> "Composition":
        return Composition((*self.parts, module), self.operator)

    def __sub__(self, key: str | Module) -> "Composition":
        gone = locate(self.parts, key)
        return Composition((p for p in self.parts if p is not gone), self.operator)

    @property
    def nonzero(self) -> int:
        """How many parameters survive in the network, or in all of them where logits are joined."""
        return sum(module.nonzero for module in self._held)

    @property
    def density(self) -> float:
        """The surviving share of these parameters."""
        return self.nonzero / max(1, sum(module.parameters for module in self._held))

    @property
    def report(self) -> dict[str, Any]:
        """What was joined and how, with notes on what to be careful about."""
        return {
            "operator": str(self.operator),
            "paper": self._how.paper,
            "parts": [module.name for module in self.parts],
            "rewarded": list(self.rewarded),
            "density": self.density,
            "nonzero": self.nonzero,
            "notes": self._notes(),
        }

    def save(self, path: str | Path) -> None:
        """Write the parts into one safetensors file, whole or not at all."""
        packed = [module.packed() for module in self.parts]
        fields = {
            "operator": {"name": self.operator.name, "arguments": dict(self.operator.arguments)},
            "parts": [fields for fields, _ in packed],
        }
        tensors = {f"{i}/{k}": t for i, (_, stored) in enumerate(packed) for k, t in stored.items()}
        file.write(path, KIND, fields, tensors)

    @classmethod
    def load(cls, path: str | Path, model: Model | None = None) -> "Composition":
        """Read the parts and join them again, to the same bits; `model` as in Module.load."""
        with file.reading(path):
            fields, tensors = file.read(path, KIND)
            header.check_keys(fields, ("operator", "parts"))
            operator = header.spec(fields["operator"], "operator")
            if operator is None:
                raise FileError("its header names no operator: get the file again")
            return cls(_parts(fields["parts"], tensors, model), operator)

    def extra_repr(self) -> str:
        return f"{self.operator} of {', '.join(module.name for module in self.parts)}"

    @property
    def _how(self) -> Operator:
        return OPERATORS[self.operator.name]  # type: ignore[return-value]

    def _lay(self, modules: Iterable[Module]) -> None:
        """Check the parts, join them, and only then change anything."""
        parts = check_fit(modules, self._how.on)
        first = parts[0]
        classes = {c for module in parts for c in module.rewarded}
        rewarded = tuple(c for c in first.catalogue if c in classes)
        held = parts if self._how.on == "logits" else (self._joined(parts, rewarded),)
        device = next((t.device for t in [*self.parameters(), *self.buffers()]), None)
        laid = nn.ModuleList(module.to_module() for module in held).to(device)
        self.laid = laid.train(self.training)
        self.parts, self._held = parts, held
        self.catalogue, self.temperature = first.catalogue, first.temperature
        self.rewarded = rewarded

    def _joined(self, parts: tuple[Module, ...], rewarded: tuple[str, ...]) -> Module:
        first = parts[0]
        states = [module.state for module in parts]
        return Module(
            name="+".join(module.name for module in parts),
            state=self._how(states=states, plan=first.plan, **self.operator.arguments),
            mask=_union(parts),
            rewarded=rewarded,
            catalogue=first.catalogue,
            architecture=first.architecture,
            scaling=first.scaling,
            temperature=first.temperature,
            origin=first.origin,
            factory=first.factory,
        )

    def _notes(self) -> list[str]:
        if self._how.on == "logits" or len(self.parts) == 1:
            return []
        plan = self.parts[0].plan
        buffers = [k for k, e in plan.items() if not e.learned and e.dtype.is_floating_point]
        if not buffers:
            return []
        return [
            f"{len(buffers)} buffers ({buffers[0]}, ...) are averages over the parts; running "
            "statistics of a normalisation fit the joined network only once they are recomputed"
        ]


def _union(parts: Iterable[Module]) -> dict[str, Tensor]:
    """An entry survives where it does in any part; a part without a mask keeps all of them."""
    masks = [module.mask for module in parts]
    shared = set.intersection(*(set(mask) for mask in masks))
    return {name: torch.stack([mask[name] for mask in masks]).any(dim=0) for name in shared}


def _parts(value: Any, tensors: Mapping[str, Tensor], model: Model | None) -> list[Module]:
    if not isinstance(value, list) or not all(isinstance(fields, dict) for fields in value):
        raise FileError("its header's 'parts' is no list of modules: get the file again")
    stored: list[dict[str, Tensor]] = [{} for _ in value]
    places = {str(i): own for i, own in enumerate(stored)}
    for name, tensor in tensors.items():
        place, _, rest = name.partition("/")
        if place not in places:
            raise FileError(f"holds the tensor {name!r} of no part: get the file again")
        places[place][rest] = tensor
    parts = []
    for fields, own in zip(value, stored, strict=True):
        parts.append(Module(**header.unpack(fields, own, model, share=len(value))))
    if len({part.name for part in parts}) < len(parts):
        raise CompositionError("has two parts of one name: get the file again")
    return parts
