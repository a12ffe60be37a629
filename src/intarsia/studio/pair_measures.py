"""What is measured between two modules: the way from one to the other, and how they fit."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from threading import RLock

from intarsia import measure
from intarsia.composition.checks import check_fit
from intarsia.data import Data, Split, subsample
from intarsia.errors import CompositionError
from intarsia.measure import Matrix, compatibility_matrix
from intarsia.measure.pair import check_pair
from intarsia.modules import Module

FEW = 1000  # rows that are looked at


class Pairs:
    """Paths and matrices, each measured once; the interference is read from the samples."""

    def __init__(self, data: Data, samples: Split) -> None:
        self.data, self.samples = data, samples
        self._paths: dict[tuple[str, str], measure.WeightPath] = {}
        self._matrices: dict[tuple[str, ...], Matrix] = {}
        self._lock = RLock()

    def path(self, a: Module, b: Module) -> measure.WeightPath:
        """The way between two modules, on a few rows of the training and the test split."""
        with self._lock:
            key = (a.name, b.name)
            if key not in self._paths:
                if a is b:
                    raise CompositionError(f"a path needs two modules, both are {a.name!r}")
                self._paths[key] = measure.path(a, b, self._little)
            return self._paths[key]

    def matrix(self, modules: Sequence[Module]) -> Matrix:
        """How every two modules fit; those that cannot be laid over the first have no place."""
        names = tuple(module.name for module in modules)
        with self._lock:
            if names not in self._matrices:
                fitting = [module for module in modules if _fits(modules[0], module)]
                self._matrices = {names: compatibility_matrix(fitting, self.samples)}
            return self._matrices[names]

    def forget(self, name: str) -> None:
        """Another module may get this name."""
        with self._lock:
            self._paths = {key: way for key, way in self._paths.items() if name not in key}
            self._matrices = {}

    @cached_property
    def _little(self) -> Data:
        train, test = (subsample(split, FEW) for split in (self.data.train, self.data.test))
        return replace(self.data, train=train, test=test)


def caution(first: Module, module: Module) -> str:
    """Why a module's weights cannot be added to another's, and what works instead."""
    try:
        check_fit((first, module), "weights")
        return ""
    except CompositionError as error:
        reason = str(error).rpartition(": ")[0]  # its advice is for those who train
    try:
        check_fit((first, module), "units")
        ways = "inlay or logits"
    except CompositionError:
        ways = "logits"
    return f"{reason}; join it by {ways}"


def _fits(first: Module, module: Module) -> bool:
    try:
        check_pair(first, module)
    except CompositionError:
        return False
    return True
