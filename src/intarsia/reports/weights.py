"""What a module looks at: its effective weight from every input, and the units it goes through."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from intarsia.data import Split, few
from intarsia.errors import WiringError
from intarsia.models.trial import input_dtype
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Module

SAMPLES = 256  # that the effective weights are averaged over


def effective_weights(module: Module, split: Split | None) -> np.ndarray | None:
    """How much each input speaks for the module's classes, in the shape of an input.

    The mean over samples of d(own - others)/dx, where `own` is the mean logit of the rewarded
    classes, `others` that of the rest, and x the scaled input. Of an MLP that is the product of its
    weights along every way from an input to the logits, each hidden unit counted as often as these
    samples switch it on. They are the module's own where a split is given, else standard normal
    noise. None for a module that rewards everything: it has no others; and for one that reads whole
    numbers, such as token ids, which have no slope.
    """
    places = [module.catalogue.index(name) for name in module.rewarded]
    rest = [c for c in range(module.architecture.outputs) if c not in places]
    if not rest:
        return None
    network = module.architecture.network(module.state, module.factory)
    if not input_dtype(network, module.architecture.shape).is_floating_point:
        return None
    rows = _rows(module, split, places).requires_grad_()
    with torch.enable_grad():
        logits = network(rows)
        gap = (logits[:, places].mean(dim=1) - logits[:, rest].mean(dim=1)).sum()
        (slope,) = torch.autograd.grad(gap, rows)
    return slope.double().mean(dim=0).numpy()


def live(module: Module) -> Mapping[str, Tensor]:
    """For each hidden layer the units that still reach the output; none without wiring."""
    try:
        wiring = module.architecture.wiring(module.factory)
    except WiringError:
        return {}
    units = live_units(wiring, module.state, module.mask)
    return {axis: units[axis] for axis in hidden_axes(wiring)}


def _rows(module: Module, split: Split | None, places: list[int]) -> Tensor:
    own = None if split is None else split.select(places)
    if own is None or not len(own):
        draw = torch.Generator().manual_seed(0)
        return torch.randn(SAMPLES, *module.architecture.shape, generator=draw)
    x = few(own, SAMPLES).x
    return module.scaling(x.reshape(len(x), *module.architecture.shape)).to(torch.float32)
