"""ModularClassifier: scikit-learn's rules outside, one module per class inside."""

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from intarsia.composition import Composition
from intarsia.data import Split
from intarsia.data.arrays import check_there
from intarsia.errors import HealthWarning
from intarsia.estimator.fitting import (
    EstimatorSettings,
    fit_temperature,
    join_modules,
    joins_weights,
    rows_with_module,
    train_modules,
)
from intarsia.estimator.labels import (
    EstimatorError,
    as_value_error,
    extended,
    index_of,
    names_of,
    one_label,
    unknown_label,
)
from intarsia.estimator.replay_buffer import ReplayBuffer
from intarsia.measure.novelty import Novelty
from intarsia.measure.novelty import novelty as fit_novelty
from intarsia.modules import Module, logits_of
from intarsia.modules.classifier import check_abstain, uncertainty
from intarsia.modules.grow import grown
from intarsia.training.engines.mlp_cpu.workers import few_threads


class ModularClassifier(ClassifierMixin, BaseEstimator):
    """One module per class, trained apart and joined without training; classes come and go.

    What can be set; None takes what serves data of this size, see
    `intarsia.training.settings.presets`:

    - `model`: a network by name with its settings, or a factory f(shape, outputs).
    - `operator`: how modules are joined (`intarsia.compose`). "auto", "logits" and "inlay" are the
      exact sum of their logits and take modules of any origin. Operators on weights need one
      origin, which a class that came later has only if `partial_fit(classes=...)` named it at
      first.
    - `objective`, `pruning`, `sparsity`, `epochs`, `batch`, `learning_rate`, `schedule`,
      `temperature`, `balance`, `negatives`: as in `intarsia.Recipe`. `negatives` are made-up rows
      of no class, on which modules learn to be uncertain; "none" makes none.
    - `class_weight`: factors of the rows of each class, as a mapping, or "balanced" for equal
      sums. `balance` already counts a rare class's rows more in its own module.
    - `validation`: fraction of the rows that is held out to choose checkpoints, the temperature of
      probabilities and what counts as unknown; 0 uses the training rows themselves.
    - `background`: how many rows are kept for modules to come, equally many of each class and the
      fraction `validation` of them held out. 0 keeps none.
    - `scale`: unit, signed, standard, capped or none; by default unit for images, capped for
      tables: z-scores that stay within 10.
    - `shape`: of one input where the rows are flat images, as (1, 28, 28) for `model="lenet"`.
    - `unknown`: the label that `predict` gives where it abstains; by default -1 for numbers and
      "unknown" for text.
    - `verbose`: True says what was chosen and shows a progress bar.
    - `device`: where modules are trained; answers are computed on the CPU in float64, so that the
      batch a row comes in changes no more than its last digits.
    - `random_state`: a whole number makes fits repeat, to the last bit.

    What a fit leaves, besides scikit-learn's `n_features_in_` and `feature_names_in_`:

    - `classes_`: the labels that have a module, sorted; columns of `predict_proba` follow them.
    - `modules_`: their modules, over one catalogue that also keeps the classes taken out.
    - `composition_`: the modules joined, an nn.Module over the catalogue, in float64.
    - `background_`: the rows kept, `train` and `validation`.
    - `temperature_`: what logits are divided by, fitted on held-out rows.
    - `novelty_`: the score by which `predict(abstain=True)` withholds answers
      (`intarsia.novelty`); 95% of the held-out rows are answered.
    """

    modules_: tuple[Module, ...]
    composition_: Composition
    background_: ReplayBuffer
    classes_: np.ndarray
    temperature_: float
    novelty_: Novelty

    # Labels of the whole catalogue, in its order, and the places of classes_ in it.
    _labels: np.ndarray
    _catalogue: tuple[str, ...]
    _columns: np.ndarray
    _seed: int

    def __init__(
        self,
        model: Any = "mlp",
        *,
        operator: Any = "auto",
        objective: Any = "me",
        pruning: Any = None,
        sparsity: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        learning_rate: float | None = None,
        schedule: str | None = None,
        temperature: float | None = None,
        balance: float | None = None,
        negatives: Any = None,
        class_weight: Any = None,
        validation: float = 0.1,
        background: int = 2000,
        scale: str | None = None,
        shape: tuple[int, ...] | None = None,
        unknown: Any = None,
        verbose: bool = False,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.operator = operator
        self.objective = objective
        self.pruning = pruning
        self.sparsity = sparsity
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.temperature = temperature
        self.balance = balance
        self.negatives = negatives
        self.class_weight = class_weight
        self.validation = validation
        self.background = background
        self.scale = scale
        self.shape = shape
        self.unknown = unknown
        self.verbose = verbose
        self.device = device
        self.random_state = random_state

    @as_value_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Train one module for each class of y and join them.

        `sample_weight` multiplies the loss of each row; a row of weight 0 is left out.
        """
        rows, labels = self._checked(X, y, reset=True)
        return self._start(*self._weighted(rows, labels, sample_weight))

    @as_value_error
    def predict(self, X: Any, abstain: bool | float | None = None) -> np.ndarray:  # noqa: N803
        """The most probable label of each row, or `unknown` where the answer is withheld.

        `abstain` is True for the score and threshold of `novelty_`, or a fraction of the largest
        entropy. The entropy is that of the whole catalogue's probabilities, the places of classes
        taken out included, so one module alone can still say "none of mine".
        """
        check_is_fitted(self)
        rows = self._rows(X)
        logits = logits_of(self.composition_, rows)
        labels = self.classes_[logits[:, self._columns].argmax(dim=1).numpy()]
        flag = isinstance(abstain, bool | np.bool_)
        if abstain is None or (flag and not abstain):
            return labels
        if flag:
            distances = self.novelty_.distances(self.composition_, rows)
            withheld = self.novelty_.scores_of(logits, distances) > self.novelty_.threshold
        else:
            withheld = uncertainty(logits, self.temperature_) > check_abstain(abstain)
        return np.where(withheld.numpy(), unknown_label(self.unknown, self.classes_), labels)

    @as_value_error
    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities of `classes_`, N x C; rows sum to one."""
        scores = self._logits(X)[:, self._columns] / self.temperature_
        return torch.softmax(scores, dim=1).numpy()

    @as_value_error
    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """Logits over the temperature, N x C; of two classes, the second's lead over the first."""
        scores = (self._logits(X)[:, self._columns] / self.temperature_).numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @as_value_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: N803
        """Learn from more rows; the modules of the labels in y are trained, all others stay.

        The first call is a fit. Later, a new label becomes a new module, as by `add_class`; a known
        one's module is trained again from its origin, on the new rows and what `background_` keeps,
        so earlier rows count as far as they are kept. Then the new rows join the background.

        Labels to come may be named in `classes`. They enter `classes_` with their first rows, since
        there is no answer without a module. Operators on weights need one origin for all modules,
        so for them the outputs of these labels exist from the start. Otherwise the catalogue grows
        with each: an output that is trained without a row of its class learns to speak against it.
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
        new = ReplayBuffer.split(rows, index, self._settings().validation, self._seed)
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
        has their labels. Where there are none, or few, it learns from X and from negatives that
        are made up, `intarsia.training.settings.presets.apart_negatives`: it never saw a row of
        another class, and the temperature of probabilities stays.

        Earlier modules may take rows of the new class for their own. A warning says so where they
        take most; `partial_fit` with rows of both classes trains these modules again.
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
        held_out = self._settings().validation
        own = ReplayBuffer.split(rows, np.full(len(rows), place), held_out, self._seed)
        against = self.background_
        if background is None and background_y is not None:
            raise EstimatorError("background_y has labels of no rows: give them as background")
        if background is not None:
            against = self._background(background, background_y, known, place)
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
        known = self._catalogue[place] if place >= 0 else None
        module = next((m for m in self.modules_ if m.rewarded == (known,)), None)
        if module is None:
            raise EstimatorError(f"there is no class {name!r}; classes: {self.classes_.tolist()}")
        if len(self.modules_) == 1:
            raise EstimatorError(f"class {name!r} is the last one: a classifier needs one module")
        rest = [m for m in self.modules_ if m is not module]
        self._rejoin(rest, self._labels, self.background_)
        return module

    @as_value_error
    def add_module(self, module: Module) -> Self:
        """Join a module that was taken out, or trained elsewhere for a class of this catalogue."""
        check_is_fitted(self)
        if not isinstance(module, Module):
            raise EstimatorError(
                f"a {type(module).__name__} is not a module: give what remove_class returned, or "
                "Module.load(path)"
            )
        taken = [m.rewarded for m in self.modules_]
        if len(module.rewarded) != 1 or module.rewarded[0] not in self._catalogue:
            raise EstimatorError(
                f"module {module.name!r} rewards {list(module.rewarded)}: expected one class of "
                f"the catalogue {list(self._catalogue)}"
            )
        if module.rewarded in taken:
            raise EstimatorError(f"class {module.rewarded[0]!r} has a module: remove_class first")
        more = [*self.modules_, grown(module, self._catalogue)]
        return self._rejoin(more, self._labels, self.background_)

    def save_pretrained(self, folder: Any, *, background: bool = True) -> None:
        """Write the classifier into a folder; see `intarsia.save_pretrained`."""
        from intarsia.hub import save_pretrained

        save_pretrained(self, folder, background=background)

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> "ModularClassifier":
        """Read a folder or a repository of the hub; see `intarsia.from_pretrained`."""
        from intarsia.hub import from_pretrained

        result = from_pretrained(source, **options)
        if not isinstance(result, cls):
            raise EstimatorError(f"{source} holds a {type(result).__name__}, not a {cls.__name__}")
        return result

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Put the classifier on the hub; see `intarsia.push_to_hub`."""
        from intarsia.hub import push_to_hub

        return push_to_hub(self, repo_id, **options)

    def _checked(self, x: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        if y is not None:  # a missing one is reported by scikit-learn
            check_there(y, "y")
        rows, labels = validate_data(self, x, y, reset=reset, dtype=np.float32)
        check_classification_targets(labels)
        return rows, labels

    def _rows(self, x: Any) -> np.ndarray:
        return validate_data(self, x, reset=False, dtype=np.float32)

    def _background(self, x: Any, y: Any, known: np.ndarray, place: int) -> ReplayBuffer:
        """The caller's background; the label of rows without one is -1."""
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
        return ReplayBuffer.split(rows, index, self._settings().validation, self._seed)

    def _settings(self) -> EstimatorSettings:
        return EstimatorSettings.read(self.get_params(deep=False))

    def _weighted(
        self, rows: np.ndarray, labels: np.ndarray, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The rows of positive weight, their labels and weights; None where all weigh the same."""
        if sample_weight is None and self.class_weight is None:
            return rows, labels, None
        weight = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        counts = weight > 0
        rows, labels, weight = rows[counts], labels[counts], weight[counts]
        if self.class_weight is not None:
            names = np.unique(labels)
            places = index_of(labels, names)
            factors = compute_class_weight(self.class_weight, classes=names, y=labels)
            if isinstance(self.class_weight, str):  # balanced: a row counts by its weight
                factors = weight.sum() / (len(names) * np.bincount(places, weight))
            weight = weight * factors[places]
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
        new = ReplayBuffer.split(rows, index, self._settings().validation, self._seed, weight)
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
        catalogue = names_of(known)
        settings = self._settings()
        wanted = [catalogue[place] for place in places]
        trained = train_modules(rows, catalogue, wanted, settings, self._seed, modules)
        others = [grown(m, catalogue) for m in modules if m.rewarded[0] not in wanted]
        kept = keep.bounded(settings.background, settings.validation, self._seed)
        held = rows.validation if len(rows.validation) else rows.train
        alone = len(held.y.unique()) < 2  # rows of one class say nothing about the others
        self._rejoin([*others, *trained], known, kept, None if alone else held)
        had = {name for m in modules for name in m.rewarded}
        if modules:
            self._warn_of_claimed(rows, [place for place in places if catalogue[place] not in had])
        return self

    def _warn_of_claimed(self, rows: ReplayBuffer, added: Sequence[int]) -> None:
        """Say so where other modules take most rows of a new class for their own."""
        for place in added:
            own = torch.cat([part.select([place]).x for part in (rows.train, rows.validation)])
            best = logits_of(self.composition_, own)[:, self._columns].argmax(dim=1).numpy()
            answers = np.bincount(self._columns[best], minlength=len(self._catalogue))
            if 2 * answers[place] < len(own):
                name, other = self._catalogue[place], self._catalogue[answers.argmax()]
                warnings.warn(
                    f"class {name!r} is the answer to {answers[place]} of the {len(own)} rows "
                    f"given of it, and {other!r} to {answers.max()}: partial_fit with rows of both "
                    "classes trains both modules again, each against the other",
                    HealthWarning,
                    stacklevel=5,
                )

    def _rejoin(
        self,
        modules: Sequence[Module],
        labels: np.ndarray,
        kept: ReplayBuffer,
        held: Split | None = None,
    ) -> Self:
        """Join the modules, and change the classifier only if that works."""
        composition = join_modules(modules, self.operator, kept)
        held = kept.validation if len(kept.validation) else held
        known = rows_with_module(composition, held)
        if known is None:  # there is nothing to fit on: both stay
            temperature, novelty = self.temperature_, self.novelty_
        else:
            with few_threads(len(known) * composition.nonzero):
                temperature = fit_temperature(composition, known)
                novelty = fit_novelty(composition, known, temperature=temperature)
        return self._set_fitted(composition, labels, kept, temperature, novelty)

    def _set_fitted(
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

    def _logits(self, x: Any) -> Tensor:
        """N x catalogue, float64."""
        check_is_fitted(self)
        return logits_of(self.composition_, self._rows(x))
