"""One network of several modules: merges tried on the device, and an inlay that is no larger."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition import Composition, compose
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.composition.merge_context import MergeContext, kept_samples
from intarsia.composition.operators.inlay import inlay_size, inlay_units
from intarsia.data import Data, Split
from intarsia.limits import limited
from intarsia.models.axes import axis_sizes, hidden_axes, names_in
from intarsia.models.units import take_units
from intarsia.modules import Architecture, Bank, Module, logits_of
from intarsia.pruning import normalisations, prunable
from intarsia.studies.plans import Plan
from intarsia.studies.scale.bank_logits import accuracy

AVERAGED, RECOMPUTED = "averaged", "recomputed"
NORMS = (AVERAGED, RECOMPUTED)  # BatchNorm statistics of a merged network
BUILT = 200_000_000  # numbers of an inlay that is built; of a larger one the parameters are counted
MEMORY = "64 GiB"  # that building it may take
DECIMALS = 4  # of the sparsity that makes an inlay fit


@dataclass(frozen=True)
class MergeCandidate:
    """An operator with its settings, and how hidden units are aligned before it."""

    operator: str
    align: str | None = None

    def __str__(self) -> str:
        return f"{self.operator}, aligned by {self.align}" if self.align else self.operator


def best_merges(
    bank: Sequence[Module] | Bank,
    candidates: Sequence[MergeCandidate],
    data: Data,
    device: torch.device,
    present: Sequence[int] | None = None,
    flips: bool = False,
) -> dict[str, dict[str, Any]]:
    """By BatchNorm statistics, the candidate that is best on validation samples.

    With `present`, samples of these classes count, statistics are recomputed from them, and answers
    are among them. A network without BatchNorm has one entry, as it is.
    """
    if present is not None:
        data = replace(data, validation=data.validation.select(present))
    best: dict[str, dict[str, Any]] = {}
    for candidate in candidates:
        for norms, network, merged in merged_networks(bank, candidate, data, device):
            score = _right(network, data.validation, present, flips)
            if norms in best and score <= best[norms]["validation"]:
                continue
            best[norms] = {
                "validation": score,
                "test": _right(network, data.test, present, flips),
                "chosen": str(candidate),
                "nonzero": merged.nonzero,
            }
    return best


def merged_networks(
    bank: Sequence[Module] | Bank, candidate: MergeCandidate, data: Data, device: torch.device
) -> Iterator[tuple[str, nn.Module, Composition]]:
    """The merged network, with the statistics of its parts averaged, then recomputed.

    They are recomputed on the device, from the samples that `compose` would take.
    """
    samples = data if candidate.align == "activations" else None
    merged = compose(
        bank, candidate.operator, samples=samples, align=candidate.align, recalibrate=False
    )
    network: Any = merged.networks[0].to(device)
    yield AVERAGED, network, merged
    if has_batchnorm(network):
        seen = kept_samples(data, merged.parts[0]).x
        recalibrate(network.network, data.scaling(seen).to(device))
        yield RECOMPUTED, network, merged


def _right(network: nn.Module, split: Split, present: Sequence[int] | None, flips: bool) -> float:
    seen = split if present is None else split.select(present)
    return accuracy(logits_of(network, seen.x, flips=flips), seen.y, present)


@dataclass(frozen=True)
class Room:
    """What a network has for modules that are to share one of its size."""

    weights: int  # that can be pruned
    tensors: int  # that hold these
    others: int  # parameters that cannot: normalisations and biases
    units: int  # of the narrowest hidden axis

    @classmethod
    def of(cls, plan: Plan, shape: tuple[int, ...], classes: int) -> "Room":
        """Of the network that a plan trains, by its shapes alone."""
        architecture = Architecture.of(plan.recipe.model, shape, classes)
        network, wiring = architecture.skeleton(), architecture.wiring()
        state = dict(network.named_parameters())
        names = prunable(state, None, spared=normalisations(network))
        weights = sum(state[name].numel() for name in names)
        others = sum(tensor.numel() for tensor in state.values()) - weights
        sizes = axis_sizes(wiring, network.state_dict())
        narrowest = min((sizes[axis] for axis in hidden_axes(wiring)), default=0)
        return cls(weights, len(names), others, narrowest)

    def sparsity(self, modules: int) -> float | None:
        """What so many modules have to be pruned to for an inlay no larger than the network.

        K ((1 - s) W + R) = W + R, with W prunable weights and R others, less one weight of every
        tensor, since what is kept is rounded; None where too few are left.
        """
        kept = (self.weights - (modules - 1) * self.others) / modules - self.tensors
        if kept <= 0:
            return None
        exact = 1 - kept / self.weights
        return math.ceil(exact * 10**DECIMALS) / 10**DECIMALS


def inlay_nonzero(bank: Sequence[Module] | Bank) -> int:
    """How many parameters an inlay of the modules has, without building it.

    Of each module those of its live units; what only the output has, its bias, counts once.
    """
    parts = sorted(bank, key=lambda part: part.name)  # as compose has them
    wiring, hidden = parts[0].architecture.wiring(parts[0].factory), 0
    shared: dict[str, Tensor] = {}
    for part, keep in zip(parts, _units(parts), strict=True):
        masks = {
            name: part.live.get(name, torch.ones(entry.shape, dtype=torch.bool))
            for name, entry in part.plan.items()
            if entry.learned
        }
        for name, mask in take_units(masks, wiring, keep).items():
            if names_in(wiring[name]) & keep.keys():
                hidden += int(mask.sum())
            else:
                shared[name] = shared.get(name, torch.zeros_like(mask)) | mask
    return hidden + sum(int(mask.sum()) for mask in shared.values())


def build_inlay(bank: Sequence[Module] | Bank) -> Composition | None:
    """The inlay of the modules as one network; None where it would hold too many zeros."""
    if inlay_size(MergeContext(tuple(bank))) > BUILT:
        return None
    with limited(memory=MEMORY):
        return compose(bank, "inlay")


def removed_exactly(inlay: Composition, name: str) -> bool:
    """Whether taking a module out leaves all others as they were, to the last bit.

    The network without it must be the one that the others make, and hold their units with the
    weights that these had before.
    """
    gone = next(part for part in inlay.parts if part.name == name)
    others = [part for part in inlay.parts if part is not gone]
    with limited(memory=MEMORY):  # networks are joined when they are first asked for
        before, after = inlay.joined, (inlay - gone).joined
        fresh = compose(others, "inlay").joined
    assert before is not None and after is not None and fresh is not None
    keep = _units_of_others(inlay.parts, gone)
    wiring = gone.architecture.wiring(gone.factory)
    kept = take_units(before.state, wiring, keep)
    # Where the others have no live unit, a dead one stands for them, whichever it is.
    alive = {axis for axis, units in keep.items() if bool(units.any())}
    hidden = set(hidden_axes(wiring))
    axes = {name: names_in(entry) & hidden for name, entry in wiring.items()}
    units = [name for name, own in axes.items() if own and own <= alive]
    same = all(torch.equal(after.state[n], fresh.state[n]) for n in after.state)
    return same and all(torch.equal(after.state[n], kept[n]) for n in units)


def _units_of_others(parts: Sequence[Module], gone: Module) -> dict[str, Tensor]:
    """Which units of an inlay, part after part, are not those of one module."""
    owners: dict[str, list[Tensor]] = {}
    for part, held in zip(parts, _units(parts), strict=True):
        for axis, units in held.items():
            owners.setdefault(axis, []).append(torch.full((int(units.sum()),), part is not gone))
    return {axis: torch.cat(own) for axis, own in owners.items()}


def _units(parts: Sequence[Module]) -> list[dict[str, Tensor]]:
    """By hidden axis, the units of each part that an inlay holds."""
    return inlay_units([part.state for part in parts], MergeContext(tuple(parts)))
