"""Magnitude and random pruning: the weights with the lowest scores go."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.models.axes import Wiring, gives_output
from intarsia.pruning.group import PRUNINGS, Group, Mask, prunable


@PRUNINGS.register("magnitude", ranks_layers_together=lambda s: s["scope"] == "global")
def magnitude(
    group: Group,
    scope: str = "global",
    biases: bool = False,
    ratios: Mapping[str, float] | None = None,
) -> list[Mask]:
    """Prune the weights of smallest magnitude, over the whole network or layer by layer.

    `ratios` scales the pruned fraction of single layers: a pattern of parameter names, or `output`
    for the layer that makes the logits, to a factor. It needs scope `layer`.
    """
    scores = [
        {name: state[name].abs() for name in prunable(state, group.wiring, biases, group.spared)}
        for state in group.states
    ]
    return _prune(scores, group, scope, _checked(ratios or {}))


@PRUNINGS.register("random", ranks_layers_together=lambda s: s["scope"] == "global")
def random(group: Group, scope: str = "global", biases: bool = False) -> list[Mask]:
    """Prune weights at random: the control for magnitude."""
    scores = []
    for state, stream in zip(group.states, group.streams, strict=True):
        generator = torch.Generator().manual_seed(stream)
        scores.append(
            {
                name: torch.rand(state[name].shape, generator=generator).to(state[name].device)
                for name in prunable(state, group.wiring, biases, group.spared)
            }
        )
    return _prune(scores, group, scope, {})


def _prune(
    scores: Sequence[Mapping[str, Tensor]], group: Group, scope: str, ratios: Mapping[str, float]
) -> list[Mask]:
    """The masks without the weights of each module that score lowest."""
    return [
        _drop(own, mask, _fractions(list(own), group, scope, ratios))
        for own, mask in zip(scores, group.masks, strict=True)
    ]


def _fractions(
    names: list[str], group: Group, scope: str, ratios: Mapping[str, float]
) -> list[tuple[list[str], float]]:
    """Parameter names that are ranked together, with the fraction of them that goes."""
    if scope == "global":
        if ratios:
            raise RecipeError("ratios per layer need scope='layer', got scope='global'")
        return [(names, group.fraction)]
    if scope != "layer":
        raise RecipeError(f"unknown pruning scope {scope!r}: use 'global' or 'layer'")
    unused = [p for p in ratios if not any(_matches(n, group.wiring, p) for n in names)]
    if unused:
        raise RecipeError(
            f"ratios name {unused[0]!r}, which fits no prunable parameter; "
            f"there are {', '.join(names)} and the word 'output'"
        )
    return [([name], group.fraction * _factor(name, group.wiring, ratios)) for name in names]


def _checked(ratios: Any) -> Mapping[str, float]:
    fine = isinstance(ratios, Mapping) and all(
        isinstance(f, int | float) and 0 <= f < float("inf") for f in ratios.values()
    )
    if not fine:
        raise RecipeError(
            f"ratios is {shortened(ratios)}: expected patterns of names to factors from 0, "
            "as in {'output': 0.5}"
        )
    return ratios


def _factor(name: str, wiring: Wiring | None, ratios: Mapping[str, float]) -> float:
    fits = [float(f) for pattern, f in ratios.items() if _matches(name, wiring, pattern)]
    return fits[-1] if fits else 1.0


def _matches(name: str, wiring: Wiring | None, pattern: str) -> bool:
    if pattern == "output":
        if wiring is None:
            raise RecipeError(
                "ratios name the 'output' layer, which is known by the wiring, and this network "
                "has none: give the name of its weight instead"
            )
        return gives_output(wiring[name])
    return fnmatchcase(name, pattern)


def _drop(
    scores: Mapping[str, Tensor], mask: Mask, fractions: list[tuple[list[str], float]]
) -> Mask:
    """Drop round(fraction * survivors) entries of each set; ties go by position, so it is exact."""
    after = dict(mask)
    for names, fraction in fractions:
        kept = [mask.get(n, torch.ones_like(scores[n], dtype=torch.bool)).flatten() for n in names]
        alive = torch.cat(kept)
        ranked = torch.cat([scores[n].flatten() for n in names])[alive]
        count = round(fraction * ranked.numel())
        if not 0 <= count <= ranked.numel():
            raise RecipeError(
                f"cannot prune a fraction of {fraction:g}: it must lie between 0 and 1"
            )
        places = alive.nonzero().squeeze(1)[torch.argsort(ranked, stable=True)[:count]]
        alive[places] = False
        for name, part in zip(names, alive.split([k.numel() for k in kept]), strict=True):
            after[name] = part.view(scores[name].shape).clone()
    return after
