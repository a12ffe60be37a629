"""What all prunings have in common: their registry, the group they see, what they may touch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import ParametrizationList

from intarsia.errors import RecipeError, nearest, shortened
from intarsia.models.axes import Wiring
from intarsia.specs import Registry

PRUNINGS = Registry(
    "pruning",
    given=("group",),
    whole_group=False,
    needs_units=False,
    needs_samples=False,
    own_sparsity=False,
    check=lambda wiring, state, modules: None,
    before_training=lambda settings: False,
    ranks_layers_together=lambda settings: False,
)
"""Ways of pruning by name; `@PRUNINGS.register("mine")` adds a function from a Group to masks.

Traits, all of them off by default:

- `whole_group`: the modules of one seed must be pruned together;
- `needs_units`: it gives out units, so the wiring of the network must be known;
- `needs_samples`: it looks at what units answer to samples, see `Group.activations`;
- `own_sparsity`: how much goes follows from the rule, and a recipe may give no sparsity;
- `check`, a function of the wiring, a state and the number of modules of a seed: our error where
  these cannot be pruned so, before anything is trained;
- `before_training`, a function of the settings: the masks are made before the first round;
- `ranks_layers_together`, a function of the settings: weights of several layers are compared.
"""

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

State = Mapping[str, Tensor]
"""Weights and buffers by name."""

Mask = dict[str, Tensor]
"""True where a weight stays; parameters left out keep all of theirs."""


@dataclass(frozen=True)
class Group:
    """Modules that are pruned at the same moment: trained states, masks so far, how much goes."""

    states: Sequence[State]
    masks: Sequence[Mask]
    wiring: Wiring | None  # None for a network whose units have no names: weights go one by one
    fraction: float  # of the surviving prunable weights
    seeds: Sequence[int]  # one per module; equal seeds share an origin
    streams: Sequence[int]  # one per module, for random choices
    spared: Collection[str] = ()  # parameters of normalisations, see `normalisations`
    # One per module, hidden axis -> units x answers; only for a pruning that `needs_samples`.
    activations: Sequence[Mapping[str, Tensor]] = ()


def check_masks(name: str, masks: Sequence[Mask], group: Group) -> None:
    """Refuse what a pruning of this name gave back, unless it is one mask for each module."""
    if len(masks) != len(group.states):
        raise RecipeError(
            f"pruning {name} gives {len(masks)} masks for {len(group.states)} modules: expected "
            "one for each, in their order"
        )
    for mask, state in zip(masks, group.states, strict=True):
        for key, kept in mask.items():
            if key not in state:
                raise RecipeError(
                    f"pruning {name} gives a mask for {shortened(key)}, which the network has not: "
                    f"{nearest(key, state)}"
                )
            if kept.dtype != torch.bool or kept.shape != state[key].shape:
                raise RecipeError(
                    f"pruning {name} gives a mask of {kept.dtype} and shape {tuple(kept.shape)} "
                    f"for {key!r}: expected torch.bool and {tuple(state[key].shape)}, True where a "
                    "weight stays"
                )


def round_fraction(sparsity: float, rounds: int) -> float:
    """Fraction of the survivors that each of N rounds prunes to reach P: 1 - (1 - P)^(1/N)."""
    return 1 - (1 - sparsity) ** (1 / rounds) if rounds else 0.0


def prunable(
    state: State, wiring: Wiring | None, biases: bool = False, spared: Collection[str] = ()
) -> list[str]:
    """Names of weight matrices and kernels, and of their biases if asked; never normalisation.

    Without a wiring the state is looked at itself, so it must hold parameters alone.
    """
    sizes = {n: t.ndim for n, t in state.items()}
    if wiring is not None:
        sizes = {n: len(axes) for n, axes in wiring.items()}
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


def normalisations(network: nn.Module) -> set[str]:
    """Names of the parameters that scale or shift what a layer has normalised.

    Those of weight norm, one per unit, are among them.
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


def density(mask: Mask, parameters: Mapping[str, Tensor]) -> float:
    """Surviving fraction of all parameters."""
    total = sum(p.numel() for p in parameters.values())
    gone = sum(int(m.numel() - torch.count_nonzero(m)) for m in mask.values())
    return 1 - gone / total
