"""Which network a module's tensors belong to."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from intarsia.errors import ModelError
from intarsia.files import canonical, plain
from intarsia.models import MODELS, Model, Wiring, build, wiring_of
from intarsia.models.axes import axis_sizes, hidden_axes
from intarsia.models.custom.probe import TOLERANCE, Probe, probe_difference, probe_of
from intarsia.models.custom.trial import answer, is_foreign
from intarsia.models.factory import model_spec
from intarsia.models.resize import resize, try_resized
from intarsia.specs import Spec


@dataclass(frozen=True)
class TensorSpec:
    """What the network expects of one tensor of its state; `learned` is False for buffers."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    learned: bool


Plan = Mapping[str, TensorSpec]


@dataclass(frozen=True)
class Architecture:
    """A model's name with all its settings, the input shape and the number of outputs.

    `model` is None for a custom factory, which must then be given wherever a network is made.
    Settings left out are filled in, so a later change of a default leaves old modules as they are.
    `widths` has the units of the hidden axes that have more or fewer of them than the model's own.
    `probe` shows what a factory's network computes, where that is known (see `probe_of`).
    """

    model: Spec | None
    shape: tuple[int, ...]
    outputs: int
    widths: Mapping[str, int] = field(default_factory=dict)
    probe: Probe | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "widths", dict(sorted(self.widths.items())))
        if self.model is not None:
            object.__setattr__(self, "model", _complete(self.model))

    def __hash__(self) -> int:
        return hash(canonical(self.to_json()))

    @classmethod
    def of(cls, model: Model, shape: tuple[int, ...], outputs: int) -> "Architecture":
        """The architecture of anything `build` takes."""
        if isinstance(model, str | Mapping | Spec):
            return cls(model_spec(model), shape, outputs)
        return cls(None, shape, outputs, probe=probe_of(model, tuple(shape), outputs))

    def __str__(self) -> str:
        inputs = "x".join(map(str, self.shape))
        widths = ", ".join(f"{axis}={units}" for axis, units in self.widths.items())
        return (
            f"{self.model or 'custom model'}, inputs {inputs}, {self.outputs} outputs"
            f"{widths and f', widths {widths}'}"
        )

    def to_json(self) -> dict[str, Any]:
        model = self.model and {"name": self.model.name, "arguments": dict(self.model.arguments)}
        value: dict[str, Any] = {"model": model, "shape": list(self.shape), "outputs": self.outputs}
        value |= {"widths": dict(self.widths)} if self.widths else {}
        return value | ({"probe": list(self.probe)} if self.probe else {})

    def with_outputs(self, outputs: int, factory: Model | None = None) -> "Architecture":
        """The same model with another number of outputs."""
        probe = self.probe and probe_of(self._model(factory), self.shape, outputs)
        return replace(self, outputs=outputs, probe=probe)

    def fitted(self, state: Mapping[str, Tensor], factory: Model | None = None) -> "Architecture":
        """The same model with the widths that the tensors of `state` have."""
        wiring = self.wiring(factory)
        own, seen = axis_sizes(wiring, self._own(factory).state_dict()), axis_sizes(wiring, state)
        widths = {axis: seen[axis] for axis in hidden_axes(wiring) if seen[axis] != own[axis]}
        return replace(self, widths=widths)

    def wiring(self, factory: Model | None = None) -> Wiring:
        """The axes of every tensor, which are the same for all widths."""
        if self.model is not None:
            return _wiring_of_named(replace(self, widths={}))
        wiring: Wiring = self._known(
            "wiring", factory, lambda: wiring_of(self._real(factory), self.shape)
        )
        return wiring

    def check_probe(self, factory: Model | None) -> None:
        """Raise ModelError unless a factory makes the network that the probe was taken of."""
        if self.model is not None or self.probe is None:
            return
        model = self._model(factory)
        probe = self._known("probe", factory, lambda: probe_of(model, self.shape, self.outputs))
        off = float("inf") if probe is None else probe_difference(self.probe, probe)
        if not off <= TOLERANCE:
            said = "cannot be compared" if probe is None else f"answers {off:.2g} of its size off"
            raise ModelError(
                "the factory given makes another network than the one that was trained: with the "
                f"same fixed weights it {said}; give the factory of the training, unchanged"
            )

    @property
    def is_foreign(self) -> bool:
        """Whether the network's code is not intarsia's own: a factory, or registered by others."""
        if self.model is None:
            return True
        return is_foreign(_skeleton_of_named(replace(self, widths={})))

    def plan(self, factory: Model | None = None) -> Plan:
        """Name, shape and dtype of every tensor, without giving any of them memory."""
        if self.model is not None:
            return _plan_of_named(self)
        return _plan(self.skeleton(factory))

    def skeleton(self, factory: Model | None = None) -> nn.Module:
        """The network on the meta device: shapes without values, and no random number drawn."""
        network = self._own(factory)
        return self._widened(network, factory) if self.widths else network

    def network(self, state: Mapping[str, Tensor], factory: Model | None = None) -> nn.Module:
        """The network holding copies of `state`, in evaluation mode."""
        network = self.skeleton(factory)
        network.load_state_dict({k: v.clone() for k, v in state.items()}, assign=True)
        tensors = [*network.parameters(), *network.buffers()]
        if any(t.is_meta for t in tensors):  # buffers that are not part of the state
            network = self._real(factory)
            if self.widths:
                resize(network, self.wiring(factory), self.widths)
            network.load_state_dict(dict(state))
        if self.widths and self.model is None:  # its skeleton may have been unable to run
            try_resized(network, self.shape, self.outputs)
        return network.eval()

    def _known(self, what: str, factory: Model | None, find: Callable[[], Any]) -> Any:
        """What is known of a factory's network, or is computed now."""
        skeleton = self._own(factory)
        # By what the factory makes today: it may be the same object and its class another.
        key = (what, type(skeleton), repr(skeleton), self.shape, self.outputs)
        try:
            known = _KNOWN.setdefault(factory, {})
        except TypeError:  # a factory that cannot be hashed or referred to weakly
            known = {}
        if key not in known:
            known[key] = find()
        return known[key]

    def _own(self, factory: Model | None) -> nn.Module:
        """The skeleton in the model's own widths."""
        try:
            with torch.device("meta"):
                return build(self._model(factory), self.shape, self.outputs)
        except Exception:
            if self.model is not None or factory is None:
                raise
        # Custom code may need values while it builds.
        return self._real(factory).to("meta")

    def _real(self, factory: Model | None) -> nn.Module:
        """The network in the model's own widths, with values."""
        with torch.random.fork_rng(devices=[]):
            return build(self._model(factory), self.shape, self.outputs)

    def _widened(self, network: nn.Module, factory: Model | None) -> nn.Module:
        # Registered models with a wiring of their own are made for it: trying them costs torch's
        # two seconds of imports for the meta device.
        custom = self.model is None or getattr(network, "wiring", None) is None
        runs = custom and _runs(network, self.shape)
        resize(network, self.wiring(factory), self.widths)
        if runs:
            try_resized(network, self.shape, self.outputs)
        return network

    def _model(self, factory: Model | None) -> Model:
        model = self.model or factory
        if model is None:
            raise ModelError(
                "this module's network comes from a factory of your own, which files do not hold: "
                "give it, as in Module.load(path, model=factory)"
            )
        return model


_KNOWN: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()  # for as long as they live


@lru_cache(maxsize=64)
def _skeleton_of_named(architecture: Architecture) -> nn.Module:
    return architecture.skeleton()


@lru_cache(maxsize=64)
def _plan_of_named(architecture: Architecture) -> Plan:
    return _plan(architecture.skeleton())


@lru_cache(maxsize=64)
def _wiring_of_named(architecture: Architecture) -> Wiring:
    network = architecture._real(None) if architecture.is_foreign else architecture.skeleton()
    return wiring_of(network, architecture.shape)


def _runs(skeleton: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a network can be tried without values; custom code may look at them."""
    try:
        answer(skeleton, shape)
    except Exception:
        return False
    return True


def _plan(skeleton: nn.Module) -> Plan:
    learned = {name for name, _ in skeleton.named_parameters(remove_duplicate=False)}
    return {
        name: TensorSpec(tuple(tensor.shape), tensor.dtype, name in learned)
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
