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

    What can be set:

    - `model`: a network by name with its settings, or a factory f(shape, outputs).
    - `operator`: how modules are joined (`intarsia.compose`). "logits" and "inlay" are the exact
      sum of their logits and take modules of any origin. Operators on weights need one origin,
      which a class that came later has only if `partial_fit(classes=...)` named it at first.
    - `objective`, `pruning`, `sparsity`, `epochs`, `batch`, `learning_rate`, `schedule`,
      `temperature`: as in `intarsia.Recipe`. With a sparsity above 0 there is one round of pruning,
      and the survivors train again from their origin. A batch of None is a twentieth of the
      training rows, from 4 to 32.
    - `validation`: share of the rows that is held out to choose checkpoints and the threshold; 0
      uses the training rows themselves.
    - `background`: how many rows are kept for modules to come, equally many of each class and the
      share `validation` of them held out. 0 keeps none.
    - `scale`: unit, signed, standard or none; by default unit for images, standard for tables.
    - `shape`: of one input where the rows are flat images, as (1, 28, 28) for `model="lenet"`.
    - `unknown`: the label that `predict` gives where it abstains; by default -1 for numbers and
      "unknown" for text.
    - `device`: where modules are trained; answers are computed on the CPU in float64, so that the
      batch a row comes in changes no more than its last digits.
    - `random_state`: a whole number makes fits repeat, to the last bit.

    What a fit leaves, beside scikit-learn's `n_features_in_` and `feature_names_in_`:

    - `classes_`: the labels that have a module, sorted; columns of `predict_proba` follow them.
    - `modules_`: their modules, over one catalogue that also keeps the classes taken out.
    - `composition_`: the modules joined, an nn.Module over the catalogue, in float64.
    - `background_`: the rows kept, `train` and `validation`.
    - `threshold_`: the share of the largest entropy below which 95% of the held-out rows lie.
    """

    def __init__(
        self,
        model: Any = "mlp(128, dropout=0.0)",
        *,
        operator: Any = "logits",
        objective: Any = "me",
        pruning: Any = "magnitude",
        sparsity: float = 0.5,
        epochs: int = 20,
        batch: int | None = None,
        learning_rate: float = 3e-3,
        schedule: str = "cosine",
        temperature: float = 1.0,
        validation: float = 0.2,
        background: int = 2000,
        scale: str | None = None,
        shape: tuple[int, ...] | None = None,
        unknown: Any = None,
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
        self.validation = validation
        self.background = background
        self.scale = scale
        self.shape = shape
        self.unknown = unknown
        self.device = device
        self.random_state = random_state

    @as_value_error
    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train one module for each class of y and join them."""
        rows, labels = self._checked(X, y, reset=True)
        return self._start(rows, labels, np.unique(labels))

    @as_value_error
    def predict(self, X: Any, abstain: bool | float | None = None) -> np.ndarray:  # noqa: N803
        """The most probable label of each row, or `unknown` where the answer is withheld.

        `abstain` is a share of the largest entropy, or True for `threshold_`. The entropy is that
        of the whole catalogue's probabilities, the places of classes taken out included, so one
        module alone can still say "none of mine".
        """
        logits = self._logits(X)
        labels = self.classes_[logits[:, self._columns].argmax(dim=1).numpy()]
        flag = isinstance(abstain, bool | np.bool_)
        if abstain is None or (flag and not abstain):
            return labels
        share = self.threshold_ if flag else check_abstain(abstain)
        withheld = uncertainty(logits, self._temperature) > share
        return np.where(withheld.numpy(), unknown_label(self.unknown, self.classes_), labels)

    @as_value_error
    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities of `classes_`, N x C; rows sum to one."""
        scores = self._logits(X)[:, self._columns] / self._temperature
        return torch.softmax(scores, dim=1).numpy()

    @as_value_error
    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """Logits over the temperature, N x C; of two classes, the second's lead over the first."""
        scores = (self._logits(X)[:, self._columns] / self._temperature).numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def save_pretrained(self, folder: Any, *, background: bool = True) -> None:
        """Write the classifier into a folder; see `intarsia.save_pretrained`."""
        from intarsia.hub import save_pretrained

        save_pretrained(self, folder, background=background)

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> "ModularClassifier":
        """Read a folder or a repository of the hub; see `intarsia.from_pretrained`."""
        from intarsia.hub import from_pretrained

        found = from_pretrained(source, **options)
        if not isinstance(found, cls):
            raise EstimatorError(f"{source} holds a {type(found).__name__}, not a {cls.__name__}")
        return found

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Put the classifier on the hub; see `intarsia.push_to_hub`."""
        from intarsia.hub import push_to_hub

        return push_to_hub(self, repo_id, **options)

    def _logits(self, x: Any) -> Tensor:
        """N x catalogue, float64."""
        check_is_fitted(self)
        return logits_of(self.composition_, self._rows(x))

    @property
    def _temperature(self) -> float:
        return self.composition_.temperature
