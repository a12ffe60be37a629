"""Two modules of one shape: whether their weights can be compared, and weights between them."""

import numpy as np
from torch import Tensor

from intarsia.data import Data, Split, evenly_spaced
from intarsia.errors import CompositionError
from intarsia.modules import Classifier, Module
from intarsia.modules.bases.base_weights import common_base
from intarsia.modules.classifier import network_inputs, raw_inputs
from intarsia.modules.statistics import joint_buffer
from intarsia.modules.traits import (
    CATALOGUE,
    MODEL,
    SCALING,
    TEMPERATURE,
    TENSORS,
    check_traits,
)

NEEDED = (CATALOGUE, MODEL, TENSORS, SCALING, TEMPERATURE)


def check_pair(a: Module, b: Module) -> None:
    """A CompositionError that says what keeps the weights of two modules apart, if anything."""
    for module in (a, b):
        if not isinstance(module, Module):
            raise CompositionError(
                f"a {type(module).__name__} cannot be compared with a module: give two modules, as "
                "Module.load or a bank has them; compatibility_matrix compares several"
            )
    check_traits(a, b, NEEDED)


def blend(a: Module, b: Module, weight_a: float, weight_b: float) -> Classifier:
    """The classifier of weight_a * theta_a + weight_b * theta_b; of changes of one base, added.

    A normalisation's running statistics are averaged with these weights, made to sum to one, so
    that a variance stays one; a unit that pruning took from one module has the statistics of the
    other. With both weights 1 this is the sum.
    """
    base = common_base((a, b))

    def mix(name: str) -> Tensor:
        if base is None:
            return weight_a * a.state[name] + weight_b * b.state[name]
        start, one, other = (s[name].double() for s in (base.state, a.state, b.state))
        mixed = start + weight_a * (one - start) + weight_b * (other - start)
        return mixed.to(base.state[name].dtype)

    state = {
        name: mix(name)
        if entry.learned
        else joint_buffer(name, (a.state, b.state), (weight_a, weight_b))
        for name, entry in a.plan.items()
    }
    classes = {*a.rewarded, *b.rewarded}
    rewarded = [name for name in a.catalogue if name in classes]
    return a.classifier(a.architecture.network(state, a.factory), rewarded)


def inputs_of(samples: Split | Data | np.ndarray | Tensor, module: Module, most: int) -> Tensor:
    """Inputs of a split, of a data set's validation part, or as they are; labels are left.

    At most so many, evenly spaced, as the module's scaling reads them: raw ones, or features.
    """
    if isinstance(samples, Data):
        samples = samples.validation
    rows = raw_inputs(samples.x if isinstance(samples, Split) else samples)
    rows = rows[evenly_spaced(len(rows), most)]
    return network_inputs(rows, module.architecture.shape, module.encoder)
