"""What all prunings share: the group they see, the parameters they may touch, a round's share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from intarsia.models.wiring import Wiring
from intarsia.specs import Registry, Spec

PRUNINGS = Registry("pruning", given=("group",))
"""Ways of pruning by name; `@PRUNINGS.register("mine")` adds one."""

State = Mapping[str, Tensor]
"""Weights and buffers by name."""

Mask = dict[str, Tensor]
"""True where a weight stays; parameters left out are whole."""


@dataclass(frozen=True)
class Group:
    """Modules that are pruned at the same moment: trained states, masks so far, how much goes."""

    states: Sequence[State]
    masks: Sequence[Mask]
    wiring: Wiring
    share: float  # of the surviving prunable weights
    seeds: Sequence[int]  # one per module; equal seeds share an origin
    streams: Sequence[int]  # one per module, for random choices


def round_share(sparsity: float, rounds: int) -> float:
    """Share K of the survivors that each of N rounds prunes to reach P: 1 - (1 - P)^(1/N)."""
    return 1 - (1 - sparsity) ** (1 / rounds) if rounds else 0.0


def prunable(state: State, wiring: Wiring, biases: bool = False) -> list[str]:
    """Names of weight matrices and kernels, and of their biases if asked; never normalisation."""
    weights = [n for n, axes in wiring.items() if len(axes) >= 2 and state[n].is_floating_point()]
    if not biases:
        return weights
    owners = {name.rpartition(".")[0] for name in weights}
    extra = [n for n in wiring if n.rpartition(".")[2] == "bias" and n.rpartition(".")[0] in owners]
    return weights + extra


def acts_before_training(spec: Spec) -> bool:
    """Whether the masks are known from the start, so that one round of training is all."""
    return spec.name == "territory" and spec.arguments.get("by", "share") == "share"


def needs_whole_group(spec: Spec) -> bool:
    """Whether the modules of one seed must be pruned together."""
    return spec.name == "territory"


def density(mask: Mask, parameters: Mapping[str, Tensor]) -> float:
    """Surviving share of all parameters."""
    total = sum(p.numel() for p in parameters.values())
    gone = sum(int(m.numel() - torch.count_nonzero(m)) for m in mask.values())
    return 1 - gone / total
