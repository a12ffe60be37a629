"""Public sets: unlabelled inputs that whoever trains a module may see, beside data with labels."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intarsia.data.arrays import as_inputs, read_npz, to_shape
from intarsia.data.sources.datasets import DATASETS
from intarsia.data.sources.image_folders import from_folder
from intarsia.data.sources.lookup import read_named
from intarsia.data.texts import Tokens, as_tokens
from intarsia.errors import DataError, nearest

WHERE = "the public set"
INPUTS = ("x_public", "x", "x_train")  # arrays that hold inputs, the first that is there


def read_public(
    given: Any, source: Any, *, download: bool, progress: bool | None, tokens: Tokens | None
) -> np.ndarray:
    """The inputs of a public set, as they are; labels, where it has some, are not looked at.

    `given` is an array, the name of an array that lies beside the data in their .npz or mapping, a
    data set by name, an .npz with inputs, or a folder of images. `source` is where the data are.
    """
    if not isinstance(given, str | os.PathLike):
        return as_inputs(as_tokens(given, tokens, WHERE), WHERE)
    name, beside = str(given), _arrays(source)
    if name in beside:
        return as_inputs(as_tokens(beside[name], tokens, WHERE), f"{WHERE} {name!r}")
    if name in DATASETS:
        return read_named(name, "fine", download, progress, tokens=tokens).x
    path = Path(given)
    if os.path.isdir(path):
        return from_folder(path, None).x
    if path.suffix.lower() != ".npz":
        known = [*beside, *DATASETS]
        raise DataError(
            f"public is {name!r}: expected an array, the name of one beside the data, a data set, "
            f"an .npz or a folder of images; {nearest(name, known)}"
        )
    arrays = read_npz(path)
    keys = [key for key in INPUTS if key in arrays] or (list(arrays) if len(arrays) == 1 else [])
    if not keys:
        raise DataError(
            f"{path} has no array of inputs (it has {', '.join(arrays) or 'none'}); expected one "
            f"of {', '.join(INPUTS)}"
        )
    return as_inputs(as_tokens(arrays[keys[0]], tokens, str(path)), f"{path}, {keys[0]}")


def fit_public(public: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """The inputs in the shape and type of the data's own."""
    rows = torch.tensor(to_shape(public, tuple(like.shape[1:]), f"{WHERE}: inputs"))
    if rows.dtype != like.dtype and not like.is_floating_point():
        raise DataError(
            f"{WHERE} holds {rows.dtype} and the data {like.dtype}: give both in one form"
        )
    return rows.to(like.dtype)


def _arrays(source: Any) -> Mapping[str, Any]:
    """The arrays among which the data lie, where they have names."""
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str | os.PathLike) and str(source).lower().endswith(".npz"):
        path = Path(source)
        return read_npz(path) if path.is_file() else {}
    return {}
