"""What profiles tell apart: k-nearest neighbours over group folds, beside plain baselines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import DataError, RecipeError, shortened
from intarsia.files import plain
from intarsia.lens.profiles import Profile
from intarsia.measure.evaluation import Renderable
from intarsia.measure.logits import auroc

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

NEIGHBOURS, FOLDS = 29, 10
ALL, FIRST, MIDDLE, LAST = "all layers", "first layer", "middle layer", "last layer"
THREE = "first, middle and last"
SINGLE = "layer "  # and its number
CHANCE, SPREAD = "log-probability", "logit spread"
DUMMY, PERMUTED = "stratified dummy", "permuted labels"


@dataclass(frozen=True)
class Classification(Renderable):
    """Area under the curve, one class against the others, by features and fold, times 100."""

    scores: Mapping[str, Sequence[float]]
    classes: Sequence[str]
    texts: int
    groups: int
    neighbours: int
    folds: int

    def mean(self, name: str) -> float:
        return float(np.mean(self.scores[name]))

    def sd(self, name: str) -> float:
        """The standard deviation over folds."""
        return float(np.std(self.scores[name], ddof=1))

    def figure(self, title: str = "what layers tell") -> "Figure":
        """Bars of the area under the curve by the layers used and by plain features, with the
        standard deviation over folds; layers one by one are in the table.
        """
        from intarsia.plots import layer_bars

        names = [n for n in self.scores if n != DUMMY and not re.fullmatch(rf"{SINGLE}\d+", n)]
        scores = {name: (self.mean(name), self.sd(name)) for name in names}
        drawn: Figure = layer_bars(scores, title=title).figure  # type: ignore[assignment]
        return drawn

    def to_json(self) -> dict[str, Any]:
        rows = {
            name: {"auc": self.mean(name), "sd": self.sd(name), "folds": list(own)}
            for name, own in self.scores.items()
        }
        result: dict[str, Any] = plain({**vars(self), "scores": rows})
        return result

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        drawn.add_column("features")
        for name in ("AUC", "sd over folds"):
            drawn.add_column(name, justify="right")
        for name in self.scores:
            drawn.add_row(name, f"{self.mean(name):.1f}", f"{self.sd(name):.1f}")
        drawn.caption = (
            f"{self.texts} texts of {len(self.classes)} classes in {self.groups} groups, "
            f"{self.neighbours} neighbours, {self.folds} folds"
        )
        return drawn


def classify(
    profiles: Profile | Sequence[Profile],
    labels: Sequence[Any],
    groups: Sequence[Any] | None = None,
    *,
    neighbours: int = NEIGHBOURS,
    folds: int = FOLDS,
    seed: int = 42,
    points: int | None = None,
    baselines: Mapping[str, Any] | None = None,
) -> Classification:
    """How well k-nearest neighbours tell labels from profiles, beside what is simpler.

    Texts of one of the `groups` share a fold. Profiles of several models are joined, interpolated
    to `points` of depth (or to the fewest layers among them). `baselines` are further features by
    name, one row for each text. All features are classified on the same folds.
    """
    features = feature_sets(profiles, points)
    count = len(features[ALL])
    if not np.isfinite(features[ALL]).all():
        raise DataError("the profiles have entropies that are not finite")
    for name, values in (baselines or {}).items():
        if name in features or name in (DUMMY, PERMUTED):
            raise DataError(f"the baseline {name!r} has the name of other features: rename it")
        features[name] = _baseline(name, values, count)
    names = np.array([str(label) for label in labels])
    own = np.arange(count) if groups is None else np.array([str(group) for group in groups])
    for what, given in (("labels", names), ("groups", own)):
        if len(given) != count:
            raise DataError(f"there are {len(given)} {what} for {count} texts")
    _check(names, own, neighbours, folds, seed)
    split = _folds(names, own, folds, seed)
    shuffled = np.random.default_rng(seed).permutation(names)
    others = _folds(shuffled, own, folds, seed)
    learned = min(len(train) for train, _ in (*split, *others))
    if neighbours > learned:
        raise DataError(
            f"{neighbours} neighbours are too many: groups are so uneven that one of {folds} folds "
            f"leaves {learned} texts to learn from"
        )
    known = {n: v for n, v in features.items() if np.isfinite(v).all()}
    scores = {name: _scores(values, names, split, neighbours) for name, values in known.items()}
    scores[DUMMY] = _dummy(names, split, seed)
    scores[PERMUTED] = _scores(features[ALL], shuffled, others, neighbours)
    classes = [str(name) for name in np.unique(names)]
    return Classification(scores, classes, count, len(np.unique(own)), neighbours, folds)


def feature_sets(
    profiles: Profile | Sequence[Profile], points: int | None = None
) -> dict[str, np.ndarray]:
    """What is classified, by name: layers alone and together, and plain numbers of the texts."""
    given = [profiles] if isinstance(profiles, Profile) else list(profiles)
    if not given or not all(isinstance(own, Profile) for own in given):
        raise DataError(f"the profiles are {shortened(profiles)}: expected profiles")
    if not any(len(own) for own in given):
        raise DataError("the profiles are of no text: give some of every class")
    depths = {own.layers for own in given}
    if len({own.windows for own in given}) > 1 or len({own.alpha for own in given}) > 1:
        raise DataError("the profiles differ in windows or alpha: take them alike")
    if points is not None or len(depths) > 1:
        given = [own.interpolated(points or min(depths)) for own in given]
    layers = given[0].layers
    ends = (0, layers // 2, layers - 1)

    def rows(chosen: Sequence[int] | None) -> np.ndarray:
        return np.concatenate([own.features(chosen) for own in given])

    result = {ALL: rows(None), FIRST: rows([0]), MIDDLE: rows([ends[1]]), LAST: rows([ends[2]])}
    result[THREE] = rows(sorted(set(ends)))
    result |= {f"{SINGLE}{place + 1}": rows([place]) for place in range(layers)}
    result[CHANCE] = np.concatenate([own.log_probability for own in given])[:, None]
    result[SPREAD] = np.concatenate([own.spread for own in given])[:, None]
    return result


def _baseline(name: str, values: Any, count: int) -> np.ndarray:
    """Numbers, a row for each text."""
    try:
        rows = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"the baseline {name!r} is not of numbers: {str(error)[:200]}") from None
    found = len(rows) if rows.ndim else 0
    if found != count:
        raise DataError(f"the baseline {name!r} has {found} rows for {count} texts")
    if not rows.size or not np.isfinite(rows).all():
        raise DataError(f"the baseline {name!r} is empty or has numbers that are not finite")
    return rows.reshape(count, -1)


def _check(names: np.ndarray, groups: np.ndarray, neighbours: int, folds: int, seed: int) -> None:
    for key, value, least in (
        ("neighbours", neighbours, 1),
        ("folds", folds, 2),
        ("seed", seed, 0),
    ):
        if type(value) is not int or not least <= value < 2**31:
            raise RecipeError(f"{key} is {shortened(value)}: expected a whole number from {least}")
    classes = np.unique(names)
    if len(classes) < 2:
        raise DataError(f"all labels are {str(classes[0])!r}: expected two classes or more")
    for name in classes:
        held = len(np.unique(groups[names == name]))
        if held < folds:
            raise DataError(
                f"class {str(name)!r} has {held} groups: too few for {folds} folds, take fewer"
            )
    if neighbours >= len(names) * (folds - 1) // folds:
        raise DataError(
            f"{neighbours} neighbours are too many for {len(names)} texts in {folds} folds"
        )


Folds = list[tuple[np.ndarray, np.ndarray]]


def _folds(names: np.ndarray, groups: np.ndarray, folds: int, seed: int) -> Folds:
    """Training and test rows; no group is on both sides, classes are as even as that allows."""
    from sklearn.model_selection import StratifiedGroupKFold

    made = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    return list(made.split(names, names, groups))


def _scores(features: np.ndarray, names: np.ndarray, split: Folds, neighbours: int) -> list[float]:
    from sklearn.neighbors import KNeighborsClassifier

    result = []
    for train, test in split:
        fitted = KNeighborsClassifier(neighbours).fit(features[train], names[train])
        result.append(_auc(names[test], fitted.predict_proba(features[test]), fitted.classes_))
    return result


def _dummy(names: np.ndarray, split: Folds, seed: int) -> list[float]:
    from sklearn.dummy import DummyClassifier

    result = []
    for fold, (train, test) in enumerate(split):
        fitted = DummyClassifier(strategy="stratified", random_state=seed + fold)
        fitted.fit(np.zeros((len(train), 1)), names[train])
        chances = fitted.predict_proba(np.zeros((len(test), 1)))
        result.append(_auc(names[test], chances, fitted.classes_))
    return result


def _auc(names: np.ndarray, chances: np.ndarray, classes: Sequence[str]) -> float:
    """The mean over classes of the area under the curve of each against the others, times 100."""
    areas = []
    for place, name in enumerate(classes):
        own = names == name
        if own.any() and not own.all():
            areas.append(auroc(chances[~own, place], chances[own, place]))
    if not areas:
        raise DataError("a fold has texts of one class alone: take fewer folds")
    return 100 * float(np.mean(areas))
