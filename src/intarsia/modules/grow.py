"""Grow: the same module over a larger catalogue, with no evidence for the classes that came."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import ModelError, WiringError
from intarsia.files import digest_of
from intarsia.models.axes import OUTPUT, Parts, Wiring, axes_of, names_in
from intarsia.modules.bases.base_weights import Base
from intarsia.modules.module import Module

RULE = "mean of all outputs"


def grown(module: Module, catalogue: Sequence[str]) -> Module:
    """The module over `catalogue`, which has all its classes and new ones, in any order.

    The output of a new class is the mean of the outputs that the module was trained with, weight
    by weight, so its logit is the mean of theirs. A class's evidence is how far its logit lies
    above that mean: the new class has none, and the old logits stay as they are. A zero output
    would say more, for the others sink where the module is sure (benchmarks/experiments/growth.py
    compares the rules). An explicit "other" stays last and has no part in the mean.

    The new origin follows from the old one and both catalogues, so the grown modules of one origin
    still fit each other; those trained over the larger catalogue have another origin. Growing in
    two steps gives the same bytes as growing in one.
    """
    catalogue = tuple(catalogue)
    if catalogue == module.catalogue:
        return module
    base = _base(module)
    places = _places(module, catalogue)
    trained = [i for i, name in enumerate(module.catalogue) if name in base["catalogue"]]
    wiring = _wiring(module)

    def extended(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {k: _extended(t, k, wiring, places, trained) for k, t in tensors.items()}

    # A change stays one: its base grows by the same rule, and is the origin of what has grown.
    larger = module.base and Base(extended(module.base.state), module.base.name, copy=False)
    return replace(
        module,
        state=extended(module.state),
        mask=extended(module.mask),
        base=larger,
        low_rank={k: v for k, v in module.low_rank.items() if not _gives_output(wiring, k)},
        catalogue=catalogue,
        architecture=module.architecture.with_outputs(len(places), module.factory),
        origin=larger.digest if larger else digest_of(["grown", RULE, base, list(catalogue)]),
        provenance={**module.provenance, "grown": {**base, "rule": RULE}},
    )


def _gives_output(wiring: Wiring, name: str) -> bool:
    """Whether a tensor has the outputs on an axis: it grows, and is no product of factors then."""
    return OUTPUT in names_in(wiring[name])


def _base(module: Module) -> dict[str, Any]:
    """The origin and the catalogue that the module was trained with."""
    earlier = module.provenance.get("grown")
    if isinstance(earlier, Mapping) and {"origin", "catalogue"} <= earlier.keys():
        known = earlier["catalogue"]
        named = isinstance(known, list) and all(isinstance(name, str) for name in known)
        if named and set(module.rewarded) <= set(known) <= set(module.catalogue):
            return {"origin": earlier["origin"], "catalogue": known}
    return {"origin": module.origin, "catalogue": list(module.catalogue)}


def _places(module: Module, catalogue: tuple[str, ...]) -> list[int | None]:
    """For every new output the old one that it continues, None for a new class."""
    gone = [name for name in module.catalogue if name not in catalogue]
    if gone or len(set(catalogue)) < len(catalogue):
        what = f"lacks {gone[0]!r}" if gone else "names a class twice"
        raise ModelError(
            f"module {module.name!r} cannot grow to the catalogue {list(catalogue)}, which {what}: "
            f"give all of {list(module.catalogue)} and the new classes, each once"
        )
    known = {name: i for i, name in enumerate(module.catalogue)}
    places = [known.get(name) for name in catalogue]
    other = range(len(known), module.architecture.outputs)
    return [*places, *other]


def _wiring(module: Module) -> Wiring:
    wiring = module.architecture.wiring(module.factory)
    for name, entry in wiring.items():
        for dimension in entry:
            own = [axis for axis in axes_of(dimension) if axis.name == OUTPUT]
            if own and (isinstance(dimension, Parts) or own[0].joint or own[0].block != 1):
                raise WiringError(
                    f"module {module.name!r} cannot grow: the outputs of {name!r} meet before they "
                    "are answers, so one more would change them; train it over the larger catalogue"
                )
    return wiring


def _extended(
    tensor: Tensor, name: str, wiring: Wiring, places: list[int | None], trained: list[int]
) -> Tensor:
    for dimension, axis in enumerate(wiring[name]):
        if any(own.name == OUTPUT for own in axes_of(axis)):
            rows = tensor.unbind(dimension)
            new = _mean([rows[i] for i in trained])
            tensor = torch.stack([new if i is None else rows[i] for i in places], dimension)
    return tensor


def _mean(rows: list[Tensor]) -> Tensor:
    """Of weights the mean; of masks, what survives in any row."""
    if rows[0].dtype == torch.bool:
        return reduce(torch.logical_or, rows)
    return reduce(torch.add, rows) / len(rows)
