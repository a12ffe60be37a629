"""What all prunings share: the group they see, the parameters they may touch, a round's share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import ParametrizationList

from intarsia.errors import RecipeError
from intarsia.models.wiring import Wiring
from intarsia.specs import Registry, Spec

PRUNINGS = Registry("pruning", given=("group",))
"""Ways of pruning by name; `@PRUNINGS.register("mine")` adds one."""

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

State = Mapping[str, Tensor]
"""Weights and buffers by name."""

Mask = dict[str, Tensor]
"""True where a weight stays; parameters left out are whole."""


@dataclass(frozen=True)
class Group:
    """Modules that are pruned at the same moment: trained states, masks so far, how much goes."""

    states: Sequence[State]
    masks: Sequence[Mask]
    wiring: Wiring | None  # None for a network whose units have no names: weights go one by one
    share: float  # of the surviving prunable weights
    seeds: Sequence[int]  # one per module; equal seeds share an origin
    streams: Sequence[int]  # one per module, for random choices
    spared: Collection[str] = ()  # parameters of normalisations, see `normalisations`


def round_share(sparsity: float, rounds: int) -> float:
    """Share K of the survivors that each of N rounds prunes to reach P: 1 - (1 - P)^(1/N)."""
    return 1 - (1 - sparsity) ** (1 / rounds) if rounds else 0.0


def prunable(
    state: State, wiring: Wiring | None, biases: bool = False, spared: Collection[str] = ()
) -> list[str]:
    """Names of weight matrices and kernels, and of their biases if asked; never normalisation.

    Without a wiring the state is looked at itself, so it must hold parameters alone.
    """
    sizes = {n: t.ndim for n, t in state.items()} if wiring is None else _dimensions(wiring)
    weights = [
        name
        for name, dimensions in sizes.items()
        if dimensions >= 2 and state[name].is_floating_point() and name not in spared
    ]
    if not weights:
        raise RecipeError(
            "the network has no weight matrix or kernel to prune: train it with sparsity=0"
        )
    if not biases:
        return weights
    owners = {name.rpartition(".")[0] for name in weights}
    extra = [n for n in sizes if n.rpartition(".")[2] == "bias" and n.rpartition(".")[0] in owners]
    return weights + extra


def _dimensions(wiring: Wiring) -> dict[str, int]:
    return {name: len(axes) for name, axes in wiring.items()}


def normalisations(network: nn.Module) -> set[str]:
    """Names of the parameters that scale or shift what a layer has normalised.

    Those of weight norm, one a unit, are among them.
    """
    names = set()
    for path, module in network.named_modules():
        prefix = f"{path}." if path else ""
        own = [f"{prefix}{key}" for key, _ in module.named_parameters(recurse=False)]
        if isinstance(module, NORMS) or type(module).__name__.lower().endswith("norm"):
            names.update(own)
        names.update(name for name in own if name.endswith("_g") and f"{name[:-1]}v" in own)
        if isinstance(module, ParametrizationList) and hasattr(module, "original1"):
            names.add(f"{prefix}original0")
    return names


def acts_before_training(spec: Spec) -> bool:
    """Whether the masks are known from the start, so that one round of training is all."""
    return spec.name == "territory" and spec.arguments.get("by", "share") == "share"


def needs_units(spec: Spec) -> bool:
    """Whether units are given out, so that the network's wiring must be known."""
    return spec.name == "territory"


def needs_whole_group(spec: Spec) -> bool:
    """Whether the modules of one seed must be pruned together."""
    return spec.name == "territory"


def density(mask: Mask, parameters: Mapping[str, Tensor]) -> float:
    """Surviving share of all parameters."""
    total = sum(p.numel() for p in parameters.values())
    gone = sum(int(m.numel() - torch.count_nonzero(m)) for m in mask.values())
    return 1 - gone / total
