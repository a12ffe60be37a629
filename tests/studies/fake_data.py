"""Data sets without content, for tests of what is planned and not measured."""

import torch

from intarsia.data import Data, Split
from intarsia.studies import StudyContext


def fake(name: str, classes: int, shape: tuple[int, ...]) -> Data:
    """Data of a given name, shape and catalogue, one sample a class."""
    split = Split(torch.zeros(classes, *shape), torch.arange(classes))
    return Data.build(name, [str(c) for c in range(classes)], split, split, split, "none")


def paper_context() -> StudyContext:
    """A context without a store that has the paper's four data sets."""
    context = StudyContext(None, "cpu")  # type: ignore[arg-type]
    shapes = {"mnist": (10, (1, 28, 28)), "fashion_mnist": (10, (1, 28, 28)),
              "har": (6, (561,)), "yeast": (4, (8,))}  # fmt: skip
    for name, (classes, shape) in shapes.items():
        context.give(fake(name, classes, shape))
    return context
