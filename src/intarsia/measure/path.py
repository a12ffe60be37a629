"""The piecewise-linear way from one module to another through their sum: is there a barrier?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from intarsia.data import Data, Split, subsample
from intarsia.errors import CompositionError, DataError, RecipeError
from intarsia.files import plain
from intarsia.measure.evaluation import Renderable, format_number
from intarsia.measure.logits import nonrewarded_entropy, rewarded_accuracy
from intarsia.measure.pair import blend, check_pair
from intarsia.modules import Classifier, Module, logits_of
from intarsia.objectives import Objective, loss, objective

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

Loss = Literal["kl", "cross_entropy"]
TOLERANCE = 2.0  # percent


@dataclass(frozen=True, eq=False)
class PathCurve:
    """What was measured at every t on one split; nan is a mean over no sample."""

    loss: np.ndarray
    accuracy: np.ndarray  # over samples whose label either module rewards
    entropy: np.ndarray  # nats, over the other samples
    n: int  # samples used
    of: int  # samples there are

    @property
    def straight(self) -> np.ndarray:
        """(1 - t) L(theta1) + t L(theta2), what a path without a barrier stays below."""
        return np.linspace(self.loss[0], self.loss[-1], len(self.loss))

    @property
    def excess(self) -> np.ndarray:
        """How far the loss is above the straight line, in percent of that; below it, negative."""
        above = self.loss - self.straight
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(above == 0, 0.0, 100 * above / self.straight)

    @property
    def barrier(self) -> float:
        """The largest excess, in percent; at least 0, which it is at both ends."""
        return float(self.excess.max())


@dataclass(frozen=True, eq=False)
class WeightPath(Renderable):
    """What `path` measured between two modules."""

    modules: tuple[str, str]
    rewarded: tuple[str, ...]
    kind: Loss
    t: np.ndarray
    curves: Mapping[str, PathCurve]  # by split

    @property
    def barrier(self) -> float:
        """The largest barrier of all splits, in percent."""
        return max(curve.barrier for curve in self.curves.values())

    @property
    def connected(self) -> bool:
        """Whether the loss stays within 2% of the straight line, on every split."""
        return self.barrier <= TOLERANCE

    def to_json(self) -> dict[str, Any]:
        curves = {
            name: {**vars(curve), "excess": curve.excess, "barrier": curve.barrier}
            for name, curve in self.curves.items()
        }
        verdict = {"barrier": self.barrier, "connected": self.connected, "tolerance": TOLERANCE}
        return plain({**vars(self), "curves": curves, **verdict}, "path")

    def figure(self) -> "Figure":
        """Loss with the band that it may rise into, accuracy and entropy along t."""
        from intarsia.plots import curve_panels

        bands = {
            f"{name}: straight line + {TOLERANCE:g}%": {
                t: (end, end, end * (1 + TOLERANCE / 100))
                for t, end in ((0.0, curve.loss[0]), (1.0, curve.loss[-1]))
            }
            for name, curve in self.curves.items()
        }
        names = {"loss": "loss", "accuracy": "rewarded accuracy", "entropy": "non-rewarded entropy"}
        panels = {
            title: {
                name: dict(zip(self.t, getattr(curve, key), strict=True))
                for name, curve in self.curves.items()
            }
            for key, title in names.items()
            if any(np.isfinite(getattr(curve, key)).any() for curve in self.curves.values())
        }
        panels["loss"] |= bands
        way = "from {} (0) to {} (1)".format(*self.modules)
        return curve_panels(panels, title=self._summary(), x=way)

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(caption="middle: both modules' weights added; worst: where the barrier is")
        headings = ("split", "samples", "at", "t", "loss", "excess %", "accuracy", "entropy")
        for heading in headings:
            table.add_column(heading, justify="left" if heading in ("split", "at") else "right")
        for name, curve in self.curves.items():
            samples = f"{curve.n}" if curve.n == curve.of else f"{curve.n} of {curve.of}"
            ends = (self.modules[0], 0), (self.modules[1], len(self.t) - 1)
            places = (("middle", len(self.t) // 2), ("worst", int(curve.excess.argmax())))
            for label, i in (*ends, *places):
                numbers = (curve.loss[i], curve.excess[i], curve.accuracy[i], curve.entropy[i])
                cells = (f"{self.t[i]:.3g}", *map(format_number, numbers))
                table.add_row(name, samples, Text(label), *cells)
                name = samples = ""
        return Group(Text(self._summary()), table)

    def _summary(self) -> str:
        each = ", ".join(f"{name} {curve.barrier:.2f}%" for name, curve in self.curves.items())
        verdict = "connected" if self.connected else "not connected"
        one, other = self.modules
        return f"path from {one} to {other}: barrier {each}; {verdict} at {TOLERANCE:g}%"


def path(
    a: Module,
    b: Module,
    data: Data | Split,
    points: int = 21,
    *,
    samples: int | None = None,
    kind: Loss = "kl",
    aligned: bool = False,
    batch: int = 4096,
    device: str | torch.device = "cpu",
) -> WeightPath:
    """Walk from module a to module b through the sum of their weights, and measure on the way.

    gamma(t) = a + 2t b up to t = 1/2, and 2(1 - t) a + b beyond. Where the modules are changes of
    one base, a and b are these changes, and gamma(t) is added to the base.

    The loss is MaxEnt's with both modules' classes rewarded: KL(target || p) as in the paper, or
    `cross_entropy` as in training, which is larger by the targets' entropy, so that every barrier
    is a smaller fraction of it. A data set is measured on its training and test parts; `samples`
    limits the former, or the one split given, to that many rows, evenly spaced.

    Running statistics of BatchNorm are averaged with the path's weights, so that the ends are the
    modules as they are; `compose` recomputes them instead, so its middle is a better one. Modules
    that come from different origins must be aligned first, which `aligned` says they are.
    """
    check_pair(a, b)
    if a.origin != b.origin and not aligned:
        raise CompositionError(
            f"module {b.name!r} does not fit module {a.name!r}: its origin is {b.origin}, not "
            f"{a.origin}: take modules of one seed (bank.seed(0) picks one), or align them first "
            "and say aligned=True"
        )
    if isinstance(points, bool) or not isinstance(points, int) or points < 3 or points % 2 == 0:
        raise RecipeError(
            f"points is {points!r}: expected an odd number from 3, so that the sum is one of them"
        )
    catalogue = a.catalogue
    measured_on = _splits(data, samples).items()
    splits = {name: (split.over(catalogue), there) for name, (split, there) in measured_on}
    rewarded = [i for i, name in enumerate(catalogue) if name in {*a.rewarded, *b.rewarded}]
    goal = objective("me", len(catalogue), rewarded)
    floor = _floor(kind, goal)
    places = np.linspace(0.0, 1.0, points)
    measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in splits}
    for t in places:
        merged = blend(a, b, min(1.0, 2 * (1 - t)), min(1.0, 2 * t)).to(device)
        for name, (split, _) in splits.items():
            measured[name].append(_measured(merged, split, goal, floor, rewarded, batch))
    curves = {}
    for name, (split, there) in splits.items():
        losses, accuracies, entropies = np.array(measured[name]).T
        curves[name] = PathCurve(losses, accuracies, entropies, len(split), there)
    return WeightPath((a.name, b.name), tuple(catalogue[i] for i in rewarded), kind, places, curves)


def _splits(data: Data | Split, samples: int | None) -> dict[str, tuple[Split, int]]:
    """The splits to measure on, by name, and how many samples each had."""
    if isinstance(data, Data):
        train, test = data.train, data.test
        return {
            "train": (_subsample(train, samples), len(train)),
            "test": (_subsample(test), len(test)),
        }
    if not isinstance(data, Split):
        raise DataError(f"a path cannot be measured on a {type(data).__name__}: pass Data or Split")
    return {"split": (_subsample(data, samples), len(data))}


def _subsample(split: Split, samples: int | None = None) -> Split:
    if samples is not None and (not isinstance(samples, int) or samples < 1):
        raise RecipeError(f"samples is {samples!r}: expected a number of rows, or None for all")
    if not len(split) or bool((split.y < 0).any()):
        raise DataError("a path needs labelled samples: give a split with a label for every row")
    return subsample(split, samples or len(split))


def _floor(kind: Loss, goal: Objective) -> torch.Tensor:
    """What is taken from the cross-entropy of each label: its target's entropy, or nothing."""
    if kind == "cross_entropy":
        return torch.zeros(len(goal.table), dtype=torch.float64)
    if kind != "kl":
        raise RecipeError(f"there is no loss {kind!r} along a path: take 'kl' or 'cross_entropy'")
    return torch.special.entr(goal.table.double()).sum(1)


def _measured(
    merged: Classifier,
    split: Split,
    goal: Objective,
    floor: torch.Tensor,
    rewarded: list[int],
    batch: int,
) -> tuple[float, float, float]:
    logits, labels = logits_of(merged, split.x, batch).double(), split.y.cpu()
    temperature = merged.temperature
    accuracy = rewarded_accuracy(logits, labels, rewarded)  # first: it checks the labels
    entropy = nonrewarded_entropy(logits, labels, rewarded, temperature)
    mean = float(loss(logits, labels, goal, temperature)) - float(floor[labels].mean())
    return mean, accuracy, entropy
