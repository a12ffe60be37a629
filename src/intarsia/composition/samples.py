"""The few samples that a composition keeps: what joining may look at, each time the same."""

from typing import Any

import torch
from torch import Tensor

from intarsia.data import Data, Split
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
        x, y = given.validation.x, _relabelled(given, module.catalogue)
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
    rows = torch.arange(min(ROWS, len(x))) * len(x) // min(ROWS, len(x))
    x = raw_inputs(x[rows].cpu(), module.architecture.shape)
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DataError("the samples hold values that are NaN or infinite: remove or fill them")
    return Split(x.contiguous(), y[rows].cpu().to(torch.int64))


def _relabelled(data: Data, catalogue: tuple[str, ...]) -> Tensor:
    """Labels by name; a class that the modules do not know has none."""
    places = [catalogue.index(name) if name in catalogue else -1 for name in data.catalogue]
    return torch.tensor(places)[data.validation.y]
