"""What is measured between two modules: the path from one to the other, and compatibility."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from threading import RLock
from typing import TypeVar

from intarsia import measure
from intarsia.composition import OPERATORS
from intarsia.composition.checks import check_fit
from intarsia.data import Data, Split, subsample
from intarsia.errors import CompositionError
from intarsia.measure import Matrix, compatibility_matrix
from intarsia.measure.pair import check_pair
from intarsia.modules import Module

PAIR_ROWS = 1000  # samples of each split
PATHS, MATRICES = 500, 8  # that are cached

K = TypeVar("K")
V = TypeVar("V")
Identity = tuple[str, str]
"""The name and the digest of a module: another one may get its name."""


class PairMeasures:
    """Paths and matrices, each measured once; interference is read from the samples."""

    def __init__(self, data: Data, samples: Split) -> None:
        self.data, self.samples = data, samples
        self._paths: OrderedDict[tuple[Identity, ...], measure.WeightPath] = OrderedDict()
        self._matrices: OrderedDict[tuple[Identity, ...], Matrix] = OrderedDict()
        self._lock = RLock()

    def path(self, a: Module, b: Module) -> measure.WeightPath:
        """The path between two modules, on a subsample of the training and the test split."""
        with self._lock:
            key = _identities((a, b))
            if key not in self._paths:
                if a is b:
                    raise CompositionError(f"a path needs two modules, both are {a.name!r}")
                self._paths[key] = measure.path(a, b, self._subsample)
            return latest(self._paths, key, PATHS)

    def matrix(self, modules: Sequence[Module]) -> Matrix:
        """The compatibility of every two modules, of those comparable with the first."""
        key = _identities(modules)
        with self._lock:
            if key not in self._matrices:
                comparable = [m for m in modules if not _refusal(check_pair, modules[0], m)]
                self._matrices[key] = compatibility_matrix(comparable, self.samples)
            return latest(self._matrices, key, MATRICES)

    @cached_property
    def _subsample(self) -> Data:
        train, test = (subsample(split, PAIR_ROWS) for split in (self.data.train, self.data.test))
        return replace(self.data, train=train, test=test)


def latest(cache: OrderedDict[K, V], key: K, most: int) -> V:
    """The value of a key; of the others, the most recently used stay."""
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
    return cache[key]


def caution(first: Module, module: Module) -> str:
    """Why a module's weights cannot be added to another's, and what works; empty if they can."""
    both = (first, module)
    refusal = _refusal(check_fit, both, "weights")
    if not refusal:
        return ""
    reason = refusal.rpartition(": ")[0]  # without its advice, which is about training
    sums = sorted(name for name, operator in OPERATORS.items() if operator.logit_sum)
    fitting = [name for name in sums if not _refusal(check_fit, both, OPERATORS[name].on)]
    return f"{reason}; join it by {' or '.join(fitting)}"


def _identities(modules: Sequence[Module]) -> tuple[Identity, ...]:
    return tuple((module.name, module.digest) for module in modules)


def _refusal(check: Callable[..., object], *given: object) -> str:
    """What a check says against these modules; empty where it has nothing to say."""
    try:
        check(*given)
    except CompositionError as error:
        return str(error)
    return ""
