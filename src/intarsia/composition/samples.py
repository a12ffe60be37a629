"""The few samples that a composition keeps: what joining may look at, each time the same."""

from typing import Any

import torch

from intarsia.data import Data, Split, spaced
from intarsia.errors import CompositionError, DataError
from intarsia.modules import Module
from intarsia.modules.classifier import raw_inputs

ROWS = 1000  # kept of what is given, and saved with the composition


def kept_samples(given: Any, module: Module) -> Split:
    """At most ROWS evenly spaced samples, laid out for a module; -1 where a label is missing.

    Data give their validation part: test samples are for reports. A Split's labels are indices
    into the catalogue already.
    """
    if isinstance(given, Data):
        x, y = given.validation.x, given.labels_in(module.catalogue)[given.validation.y]
    elif isinstance(given, Split):
        x, y = given.x, given.y
    else:
        x = raw_inputs(given)
        y = torch.full((len(x),), -1)
    if not len(x):
        raise CompositionError("the samples are empty: give a few hundred inputs")
    if int(y.min()) < -1 or int(y.max()) >= len(module.catalogue):
        bad = int(y.max() if y.min() >= -1 else y.min())
        raise CompositionError(
            f"the samples have the label {bad} for a catalogue of "
            f"{len(module.catalogue)} classes: labels are indices into it"
        )
    rows = spaced(len(x), ROWS)
    x = raw_inputs(x[rows].cpu(), module.architecture.shape)
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DataError("the samples hold values that are NaN or infinite: remove or fill them")
    return Split(x.contiguous(), y[rows].cpu().to(torch.int64))
