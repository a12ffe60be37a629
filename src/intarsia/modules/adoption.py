"""Adoption: what a module needs to know of a network that was trained elsewhere."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from intarsia.data import Scaling, set_name
from intarsia.errors import ModelError, shortened
from intarsia.files import digest_of
from intarsia.models import Model, as_model
from intarsia.models.custom.adapting import logits_in, shared_names
from intarsia.models.custom.trial import answer, is_deterministic, is_foreign
from intarsia.modules.architecture import Architecture
from intarsia.modules.bases.base_weights import Base, BaseSource, fit_base, output_names, read_base
from intarsia.modules.bases.low_rank import LowRank

UNSCALED = Scaling("none", torch.zeros(()), torch.ones(()))


def fields_of(
    network: nn.Module | Mapping[str, Tensor],
    rewarded: str | Sequence[str],
    catalogue: Sequence[str],
    base: BaseSource | None,
    shape: Sequence[int] | None,
    scaling: Scaling | None,
    temperature: float,
    name: str | None,
    model: Model | nn.Module | None,
) -> dict[str, Any]:
    """The arguments of a Module, see `Module.of`."""
    classes = _classes(rewarded, catalogue)
    holder = network if isinstance(network, nn.Module) else model
    state, model = _state_and_model(network, model)
    inputs = _shape(network, state) if shape is None else tuple(shape)
    outputs = len(catalogue)
    if isinstance(network, nn.Module):
        _check_labels(network, catalogue)
        outputs = _outputs(network, inputs)
    architecture = Architecture.of(model, inputs, outputs)
    factory = model if architecture.model is None else None
    seen = _head_size(state, architecture, factory) or outputs
    if seen == outputs + 1:
        architecture = Architecture.of(model, inputs, seen)
    if seen not in (len(catalogue), len(catalogue) + 1):
        raise ModelError(
            f"the network has {seen} outputs for a catalogue of {len(catalogue)} classes: give "
            "the classes of its outputs, in their order; a catalogue that is larger can follow, "
            "by intarsia.grown(module, catalogue)"
        )
    if seen > len(catalogue):
        warnings.warn(
            f"the network has {seen} outputs for a catalogue of {len(catalogue)} classes: its last "
            "output is taken for 'none of these'. If it is a class, name it in the catalogue",
            stacklevel=3,
        )
    fields = {
        "name": name or set_name(tuple(map(str, classes)), tuple(map(str, catalogue))),
        "state": state,
        "mask": {},
        "rewarded": classes,
        "catalogue": tuple(catalogue),
        "architecture": architecture,
        "scaling": scaling or UNSCALED,
        "temperature": temperature,
        "origin": digest_of("origin", state),
        "factory": factory,
    }
    if base is None:
        return fields
    if isinstance(base, Mapping) and isinstance(holder, nn.Module):
        base = _named_once(base, holder, "the base")
    fitted = fit_base(read_base(base)[0], architecture, factory)
    plan = architecture.plan(factory)
    mask = {
        key: state[key] != fitted.state[key]
        for key, entry in plan.items()
        if entry.learned and key in state and state[key].shape == entry.shape
    }
    return fields | {"base": fitted, "origin": fitted.digest, "mask": mask}


def _classes(rewarded: Any, catalogue: Any) -> tuple[str, ...]:
    """The rewarded classes, of a catalogue that has an order."""
    if isinstance(catalogue, AbstractSet) or not isinstance(catalogue, Iterable):
        raise ModelError(
            f"the catalogue is {shortened(catalogue)}: expected the classes of the outputs, in "
            'their order, as in ["cat", "dog"]'
        )
    if isinstance(rewarded, str):
        return (rewarded,)
    if not isinstance(rewarded, Iterable) or not (classes := tuple(rewarded)):
        raise ModelError(
            f"rewarded is {shortened(rewarded)}: expected classes of the catalogue, at least one, "
            f"as in [{shortened(next(iter(catalogue), 'cat'))}]"
        )
    return classes


def with_adapter(
    fields: dict[str, Any],
    changes: Mapping[str, LowRank],
    whole: Mapping[str, Tensor],
    folder: str,
) -> dict[str, Any]:
    """The arguments of a module that is its base, as those of the base with an adapter."""
    base: Base = fields["base"]
    for name in (*changes, *whole):
        if name not in base.state:
            raise ModelError(
                f"{folder}: it changes {shortened(name)}, which the network given has not: give "
                "the network that the adapter was made for"
            )
    state = {name: tensor for name, tensor in base.state.items() if name not in changes}
    mask = {name: kept for name, kept in fields["mask"].items() if name not in changes}
    for name, tensor in whole.items():
        if tensor.shape != base.state[name].shape:
            raise ModelError(
                f"{folder}: its {name!r} has shape {tuple(tensor.shape)}, that of the network "
                f"{tuple(base.state[name].shape)}: give the network that the adapter was made for"
            )
        state[name] = tensor.to(base.state[name].dtype)
        if name in mask:
            mask[name] = state[name] != base.state[name]
    return fields | {"state": state, "mask": mask, "low_rank": dict(changes)}


def _state_and_model(
    network: nn.Module | Mapping[str, Tensor], model: Model | nn.Module | None
) -> tuple[dict[str, Tensor], Model]:
    if isinstance(network, nn.Module):
        given, model = network.state_dict(), network if model is None else model
    elif isinstance(network, Mapping):
        given = dict(network)
        if model is None:
            raise ModelError(
                "a state dict does not say which network it is of: give that too, as in "
                "Module.of(state, model=network), or the name or factory of one"
            )
    else:
        raise ModelError(
            f"a {type(network).__name__} is not a network: give a torch.nn.Module, or a state dict "
            "with model=; published('hf/./folder') reads a folder of transformers, "
            "safetensors.torch.load_file a file"
        )
    state = {}
    for key, tensor in given.items():
        if not isinstance(tensor, Tensor):
            inside = isinstance(tensor, Mapping)
            advice = f": give what it has there, state[{shortened(key)}]" if inside else ""
            raise ModelError(
                f"the state dict has {shortened(key)}, a {type(tensor).__name__}: expected tensors"
                + advice
            )
        if is_lazy(tensor):
            raise ModelError(
                f"the network has no {shortened(key)} yet, which is made by its first input: run "
                "it once before"
            )
        state[str(key)] = tensor.detach().cpu()
    factor = next((key for key in state if ".lora_A." in key), None)
    if factor is not None:  # joined one by one, factors would give another product
        raise ModelError(
            f"the network has an adapter in it, with {shortened(factor)}: merge it first, as "
            "peft's merge_and_unload() does, or read the adapter's folder by Module.from_adapter"
        )
    holder = network if isinstance(network, nn.Module) else model
    if isinstance(holder, nn.Module):
        state = _named_once(state, holder, "the state dict")
    form = as_model(model)
    assert form is not None
    return state, form


def _named_once(state: Mapping[str, Tensor], holder: nn.Module, what: str) -> dict[str, Tensor]:
    """A state without the further names of tensors that the network shares; ours has each once."""
    shared = shared_names(holder)
    for name, first in shared.items():
        if name in state and first in state and not torch.equal(state[name], state[first]):
            raise ModelError(
                f"{what} has other values for {name!r} than for {first!r}, which are one tensor "
                f"in the {type(holder).__name__}: give a network in which they are two, as it was "
                "trained"
            )
    return {name: tensor for name, tensor in state.items() if name not in shared}


def _shape(network: nn.Module | Mapping[str, Tensor], state: Mapping[str, Tensor]) -> tuple[int]:
    """The inputs of the first layer, where that is a Linear one."""
    first: Tensor | None = next((t for t in state.values() if t.ndim > 1), None)
    if isinstance(network, nn.Module):
        layers = [m for m in network.modules() if any(True for _ in m.parameters(recurse=False))]
        if not layers or not isinstance(layers[0], nn.Linear):
            first = None
    if first is None or first.ndim != 2:
        raise ModelError(
            "the shape of the network's inputs does not follow from its first layer: give it, "
            "without the batch, as in shape=(3, 32, 32)"
        )
    return (int(first.shape[1]),)


def _check_labels(network: nn.Module, catalogue: Sequence[str]) -> None:
    """Refuse a catalogue that has the labels of a network of transformers in another order."""
    labels = getattr(getattr(network, "config", None), "id2label", None)
    if not isinstance(labels, Mapping):
        return
    named = [str(labels.get(place)) for place in range(len(labels))]
    given = list(map(str, catalogue))
    if named != given and sorted(named) == sorted(given):
        raise ModelError(
            f"the config of the {type(network).__name__} names its outputs "
            f"{shortened(', '.join(named))}, and the catalogue has them in another order, "
            f"{shortened(', '.join(given))}: give it in the order of the outputs"
        )


def _outputs(network: nn.Module, shape: tuple[int, ...]) -> int:
    try:
        logits = logits_in(answer(network, shape))
    except Exception as cause:
        dtypes = {p.dtype for p in network.parameters() if p.is_floating_point()}
        if dtypes and torch.float32 not in dtypes:
            advice = f"its weights are {dtypes.pop()}, and inputs float32: give network.float()"
        else:
            advice = "give the shape it reads, as in shape=(3, 32, 32)"
        raise ModelError(
            f"the {type(network).__name__} fails on two inputs of shape {shape}: "
            f"{type(cause).__name__}: {cause}: {advice}"
        ) from cause
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise ModelError(
            f"the {type(network).__name__} gives {type(logits).__name__} for two inputs of shape "
            f"{shape}: expected logits, two rows of them; hold it by a module whose forward "
            "returns these"
        )
    if is_foreign(network) and not is_deterministic(network, shape):
        raise ModelError(
            f"the {type(network).__name__} answers differently to the same inputs, also in "
            "evaluation mode: turn what it draws off there, as nn.Dropout does, and "
            "torch.nn.functional.dropout with training=self.training"
        )
    return int(logits.shape[1])


def _head_size(
    state: Mapping[str, Tensor], architecture: Architecture, factory: Model | None
) -> int | None:
    """How many outputs the state's own last layer has, of which several rows may make one."""
    plan = architecture.plan(factory)
    sizes = (
        int(state[name].shape[0]) * architecture.outputs // plan[name].shape[0]
        for name in output_names(architecture, factory)
        if name in state and state[name].ndim and any(plan[name].shape[:1])
    )
    return next(sizes, None)
