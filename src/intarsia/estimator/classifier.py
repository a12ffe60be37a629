"""ModularClassifier: scikit-learn's rules outside, one module per class inside."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from intarsia.estimator.changing import Changing
from intarsia.estimator.labels import EstimatorError, as_value_error, unknown_label
from intarsia.modules import logits_of
from intarsia.modules.classifier import check_abstain, uncertainty


class ModularClassifier(Changing, ClassifierMixin, BaseEstimator):
    """One module per class, trained apart and joined without training; classes come and go.

    What can be set; None takes what serves data of this size (`intarsia.training.presets`):

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
      tables: z-scores of which none lies beyond 10.
    - `shape`: of one input where the rows are flat images, as (1, 28, 28) for `model="lenet"`.
    - `unknown`: the label that `predict` gives where it abstains; by default -1 for numbers and
      "unknown" for text.
    - `verbose`: True says what was chosen and shows a progress bar.
    - `device`: where modules are trained; answers are computed on the CPU in float64, so that the
      batch a row comes in changes no more than its last digits.
    - `random_state`: a whole number makes fits repeat, to the last bit.

    What a fit leaves, beside scikit-learn's `n_features_in_` and `feature_names_in_`:

    - `classes_`: the labels that have a module, sorted; columns of `predict_proba` follow them.
    - `modules_`: their modules, over one catalogue that also keeps the classes taken out.
    - `composition_`: the modules joined, an nn.Module over the catalogue, in float64.
    - `background_`: the rows kept, `train` and `validation`.
    - `temperature_`: what logits are divided by, fitted on held-out rows.
    - `novelty_`: the score by which `predict(abstain=True)` withholds answers
      (`intarsia.novelty`); 95% of the held-out rows are answered.
    """

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

    def _logits(self, x: Any) -> Tensor:
        """N x catalogue, float64."""
        check_is_fitted(self)
        return logits_of(self.composition_, self._rows(x))
