"""Changing: how a fitted classifier learns more rows, and how its classes come and go."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from intarsia.composition import Composition
from intarsia.data import Split
from intarsia.data.arrays import check_there
from intarsia.estimator.labels import (
    EstimatorError,
    as_value_error,
    extended,
    index_of,
    names_of,
    one_label,
)
from intarsia.estimator.learn import (
    Settings,
    fitted_temperature,
    joins_weights,
    known_rows,
    laid,
    learned,
)
from intarsia.estimator.replay_buffer import ReplayBuffer
from intarsia.measure.novelty import Novelty
from intarsia.measure.novelty import novelty as fit_novelty
from intarsia.modules import Module
from intarsia.modules.grow import grown
from intarsia.training.engines.mlp_cpu.workers import few_threads


class Changing:
    """The part of ModularClassifier that makes and changes what it knows."""

    modules_: tuple[Module, ...]
    composition_: Composition
    background_: ReplayBuffer
    classes_: np.ndarray
    temperature_: float
    novelty_: Novelty
    random_state: Any
    class_weight: Any
    operator: Any

    # Labels of the whole catalogue, in its order, and the places of classes_ in it.
    _labels: np.ndarray
    _catalogue: tuple[str, ...]
    _columns: np.ndarray
    _seed: int

    @as_value_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: N803
        """Learn more rows; the modules of the labels in y are trained, all others stay.

        The first call is a fit. Later, a new label becomes a new module, as by `add_class`; a known
        one's module is trained again from its origin, on the new rows and what `background_` keeps,
        so what it saw earlier counts as far as it is kept. Then the new rows join the background.

        Labels to come may be named in `classes`. They enter `classes_` with their first rows, for
        without a module there is no answer. Operators on weights need one origin for all modules,
        so for them the outputs of these labels exist from the start. Else the catalogue grows with
        each: an output that is trained without a row of its class learns to speak against it.
        """
        first = not hasattr(self, "modules_")
        rows, labels = self._checked(X, y, reset=first)
        known = np.unique(labels) if first else extended(self._labels, labels)
        if classes is not None:
            named = extended(known, classes)
            known = named if joins_weights(self.operator) else known
        if first:
            return self._start(*self._weighted(rows, labels, None), np.unique(known))
        index = index_of(labels, known)
        new = ReplayBuffer.cut(rows, index, self._settings().validation, self._seed)
        more = self.background_.joined(new)
        return self._learn(more, known, np.unique(index), self.modules_, keep=more)

    @as_value_error
    def add_class(
        self,
        X: Any,  # noqa: N803
        name: Any,
        background: Any = None,
        background_y: Any = None,
    ) -> Self:
        """Train one module for the class `name`, of which X has rows, and join it to the others.

        No other module is trained: the catalogue grows, and they get an output for the new class
        that carries no evidence (`intarsia.grown`). The new module learns to be uncertain about
        `background_`, or about the rows given as `background`; these are kept if `background_y`
        has their labels.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        if one_label(name) in self.classes_.tolist():
            raise EstimatorError(
                f"class {name!r} is there already: partial_fit trains its module again, "
                "remove_class takes it out"
            )
        known = extended(self._labels, name)
        place = int(index_of(np.asarray([name], dtype=known.dtype), known)[0])
        share = self._settings().validation
        own = ReplayBuffer.cut(rows, np.full(len(rows), place), share, self._seed)
        against = self.background_
        if background is None and background_y is not None:
            raise EstimatorError("background_y has labels of no rows: give them as background")
        if background is not None:
            against = self._given(background, background_y, known, place)
        keep = self.background_.joined(own)
        if background_y is not None:
            keep = keep.joined(against)
        return self._learn(against.joined(own), known, [place], self.modules_, keep)

    @as_value_error
    def remove_class(self, name: Any) -> Module:
        """Take the module of a class out and return it; `add_module` puts it back, bit for bit.

        The class leaves `classes_` and is never predicted. Its output stays in the catalogue,
        where no module speaks for it, and its rows stay in `background_`: to the other modules
        they are what they were, and `predict(X, abstain=True)` finds them unknown.
        """
        check_is_fitted(self)
        place = int(index_of(np.asarray([one_label(name)], dtype=object), self._labels)[0])
        text = self._catalogue[place] if place >= 0 else None
        module = next((m for m in self.modules_ if m.rewarded == (text,)), None)
        if module is None:
            raise EstimatorError(f"there is no class {name!r}; classes: {self.classes_.tolist()}")
        if len(self.modules_) == 1:
            raise EstimatorError(f"class {name!r} is the last one: a classifier needs one module")
        rest = [m for m in self.modules_ if m is not module]
        self._settle(rest, self._labels, self.background_)
        return module

    @as_value_error
    def add_module(self, module: Module) -> Self:
        """Join a module that was taken out, or trained elsewhere for a class of this catalogue."""
        check_is_fitted(self)
        taken = [m.rewarded for m in self.modules_]
        if len(module.rewarded) != 1 or module.rewarded[0] not in self._catalogue:
            raise EstimatorError(
                f"module {module.name!r} rewards {list(module.rewarded)}: expected one class of "
                f"the catalogue {list(self._catalogue)}"
            )
        if module.rewarded in taken:
            raise EstimatorError(f"class {module.rewarded[0]!r} has a module: remove_class first")
        more = [*self.modules_, grown(module, self._catalogue)]
        return self._settle(more, self._labels, self.background_)

    def _checked(self, x: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        if y is not None:  # which scikit-learn tells
            check_there(y, "y")
        rows, labels = validate_data(self, x, y, reset=reset, dtype=np.float32)
        check_classification_targets(labels)
        return rows, labels

    def _rows(self, x: Any) -> np.ndarray:
        return validate_data(self, x, reset=False, dtype=np.float32)

    def _given(self, x: Any, y: Any, known: np.ndarray, place: int) -> ReplayBuffer:
        """The caller's background; -1 for rows whose label is not told."""
        rows = self._rows(x)
        index = np.full(len(rows), -1)
        if y is not None:
            labels = np.asarray(y)
            index = index_of(labels, known)
            if len(index) != len(rows) or (index < 0).any() or (index == place).any():
                raise EstimatorError(
                    "background_y must have one label for each background row, each of them a "
                    f"class other than the new one: {known.tolist()}"
                )
        return ReplayBuffer.cut(rows, index, self._settings().validation, self._seed)

    def _settings(self) -> Settings:
        return Settings.read(self.get_params(deep=False))  # type: ignore[attr-defined]

    def _weighted(
        self, rows: np.ndarray, labels: np.ndarray, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The rows that count, their labels and their weights, None where all count alike."""
        if sample_weight is None and self.class_weight is None:
            return rows, labels, None
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        counts = weight > 0
        rows, labels, weight = rows[counts], labels[counts], weight[counts]
        if self.class_weight is not None:
            names = np.unique(labels)
            factors = compute_class_weight(self.class_weight, classes=names, y=labels)
            weight = weight * factors[index_of(labels, names)]
        return rows, labels, weight / weight.mean()

    def _start(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        weight: np.ndarray | None,
        known: np.ndarray | None = None,
    ) -> Self:
        known = np.unique(labels) if known is None else known
        index = index_of(labels, known)
        present = np.unique(index)
        if len(present) < 2:
            raise EstimatorError(
                f"y has 1 class only ({labels.tolist()[0]!r}): a module learns its class against "
                "others, give at least 2"
            )
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        new = ReplayBuffer.cut(rows, index, self._settings().validation, self._seed, weight)
        return self._learn(new, known, present, modules=(), keep=new)

    def _learn(
        self,
        rows: ReplayBuffer,
        known: np.ndarray,
        places: Sequence[int] | np.ndarray,
        modules: Sequence[Module],
        keep: ReplayBuffer,
    ) -> Self:
        """Train the modules of these places of the catalogue, and join them to the others."""
        if len(rows.train.y.unique()) < 2:
            raise EstimatorError(
                f"class {known.tolist()[places[0]]!r} needs rows of other classes to be told from, "
                "and none were kept: give them to add_class as background, or to partial_fit"
            )
        catalogue = names_of(known)
        settings = self._settings()
        wanted = [catalogue[place] for place in places]
        trained = learned(rows, catalogue, wanted, settings, self._seed, modules)
        others = [grown(m, catalogue) for m in modules if m.rewarded[0] not in wanted]
        kept = keep.bounded(settings.background, settings.validation, self._seed)
        held = rows.validation if len(rows.validation) else rows.train
        return self._settle([*others, *trained], known, kept, held)

    def _settle(
        self,
        modules: Sequence[Module],
        labels: np.ndarray,
        kept: ReplayBuffer,
        held: Split | None = None,
    ) -> Self:
        """Join the modules, and only then change anything."""
        composition = laid(modules, self.operator, kept)
        held = kept.validation if len(kept.validation) else held
        known = known_rows(composition, held)
        if known is None:  # nothing to fit them on: as they were
            temperature, novelty = self.temperature_, self.novelty_
        else:
            with few_threads(len(known) * composition.nonzero):
                temperature = fitted_temperature(composition, known)
                novelty = fit_novelty(composition, known, temperature=temperature)
        return self._take(composition, labels, kept, temperature, novelty)

    def _take(
        self,
        composition: Composition,
        labels: np.ndarray,
        kept: ReplayBuffer,
        temperature: float,
        novelty: Novelty,
    ) -> Self:
        catalogue = names_of(labels)
        order = {name: i for i, name in enumerate(catalogue)}
        parts = sorted(composition.parts, key=lambda module: order[module.rewarded[0]])
        self.modules_, self.composition_ = tuple(parts), composition
        self.background_, self.temperature_, self.novelty_ = kept, temperature, novelty
        self.classes_ = np.sort(labels[[order[module.rewarded[0]] for module in parts]])
        self._labels, self._catalogue = labels, catalogue
        self._columns = index_of(self.classes_, labels)
        return self
