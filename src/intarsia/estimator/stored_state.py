"""A fitted classifier as plain values and tensors, and back; files are never trusted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.composition import Composition
from intarsia.data import Split
from intarsia.errors import DataError, FileError, shortened
from intarsia.estimator.labels import names_of
from intarsia.estimator.modular_classifier import ModularClassifier
from intarsia.estimator.replay_buffer import ReplayBuffer
from intarsia.files import plain
from intarsia.measure.novelty import Novelty
from intarsia.models import Model
from intarsia.modules import header
from intarsia.specs import Spec

FIELDS = (
    "parameters", "labels", "seed", "temperature", "novelty", "features", "feature_names",
)  # fmt: skip
KINDS = "biufUO"  # of labels: numbers, text, and objects that are one of these
VALUES = bool | int | float | str


def packed(classifier: ModularClassifier) -> dict[str, Any]:
    """Everything but the composition and the background, as JSON values."""
    labels = classifier._labels
    values = labels.tolist()
    if labels.dtype.kind not in KINDS or not all(isinstance(v, VALUES) for v in values):
        raise FileError(
            f"labels of type {labels.dtype} cannot be written, such as {values[0]!r}: "
            "fit with text or numbers"
        )
    names = getattr(classifier, "feature_names_in_", None)
    return {
        "parameters": {k: _parameter(k, v) for k, v in classifier.get_params().items()},
        "labels": {"type": labels.dtype.str, "values": values},
        "seed": classifier._seed,
        "temperature": classifier.temperature_,
        "novelty": classifier.novelty_.to_json(),
        "features": classifier.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
    }


def unpacked(
    fields: Mapping[str, Any],
    composition: Composition,
    tensors: Mapping[str, Tensor],
    model: Model | None,
) -> ModularClassifier:
    """The classifier from its fields, or a FileError; `tensors` are those of its background."""
    header.check_keys(fields, FIELDS)
    if not isinstance(fields["parameters"], dict):
        raise FileError("its 'parameters' are not a mapping: get the files again")
    parameters = dict(fields["parameters"])
    known = ModularClassifier().get_params()
    header.check_keys(parameters, tuple(known))
    if model is not None:
        parameters["model"] = model
    if parameters["shape"] is not None:
        parameters["shape"] = tuple(parameters["shape"])
    labels = _labels(fields["labels"])
    if names_of(labels) != composition.catalogue:
        raise FileError("its labels are not those of its modules: get the files again")
    if any(len(part.rewarded) != 1 for part in composition.parts):
        raise FileError("a module of it rewards several classes: load it as a composition")
    features, seed, temperature = (_number(fields, k) for k in ("features", "seed", "temperature"))
    if not temperature > 0:
        raise FileError("its temperature is 0, expected a number above 0: get the files again")
    try:
        novelty = Novelty.from_json(fields["novelty"])
    except DataError as error:
        raise FileError(f"{error}") from error
    classifier = ModularClassifier(**parameters)
    classifier._seed, classifier.n_features_in_ = int(seed), int(features)
    if fields["feature_names"] is not None:
        names = header.texts(fields["feature_names"], "feature_names")
        classifier.feature_names_in_ = np.array(names, dtype=object)
    buffer = _replay_buffer(tensors, int(features), len(labels))
    return classifier._set_fitted(composition.double(), labels, buffer, temperature, novelty)


def background_tensors(buffer: ReplayBuffer) -> dict[str, Tensor]:
    parts = {"train": buffer.train, "validation": buffer.validation}
    return {f"{part}/{key}": getattr(split, key) for part, split in parts.items() for key in "xy"}


def _replay_buffer(tensors: Mapping[str, Tensor], features: int, classes: int) -> ReplayBuffer:
    if not tensors:
        return ReplayBuffer.empty(features)
    header.check_keys(tensors, tuple(background_tensors(ReplayBuffer.empty(features))))
    for part in ("train", "validation"):
        x, y = tensors[f"{part}/x"], tensors[f"{part}/y"]
        fits = x.shape == (len(x), features) and y.shape == (len(x),)
        if not fits or (x.dtype, y.dtype) != (torch.float32, torch.int64):
            raise FileError(
                f"its background has {part} rows of shape {tuple(x.shape)} {x.dtype} for "
                f"{features} features, with labels {tuple(y.shape)} {y.dtype}: get the files again"
            )
        if not bool(((y >= 0) & (y < classes)).all()) or not bool(torch.isfinite(x).all()):
            raise FileError("its background has rows of no class, or nan: get the files again")
    train, validation = (
        Split(tensors[f"{k}/x"], tensors[f"{k}/y"]) for k in ("train", "validation")
    )
    return ReplayBuffer(train, validation)


def _parameter(name: str, value: Any) -> Any:
    if isinstance(value, Spec):
        value = {"name": value.name, **value.arguments}
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None  # a generator; the seed that it gave is stored
    if name == "model" and not isinstance(value, str | Mapping):
        return None  # a factory, which from_pretrained must be given
    return plain(value, name)


def _labels(value: Any) -> np.ndarray:
    try:
        values, dtype = value["values"], np.dtype(value["type"])
        if dtype.kind not in KINDS or not all(isinstance(v, VALUES) for v in values):
            raise ValueError(f"labels of type {dtype}")
        labels = np.array(values, dtype=dtype)
        if labels.ndim != 1 or not len(labels) or labels.tolist() != values:
            raise ValueError("they do not fit their type")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FileError(f"its labels cannot be read ({error}): get the files again") from error
    return labels


def _number(fields: Mapping[str, Any], key: str) -> float:
    value = fields[key]
    if type(value) not in (int, float) or not 0 <= value < 2**53:
        raise FileError(
            f"its {key!r} is {shortened(value)}, expected a number: get the files again"
        )
    return value
