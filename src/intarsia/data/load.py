"""`load_data`: from a name, a file or arrays to splits with a scaling."""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from intarsia.data.dataset import Data, Split
from intarsia.data.lookup import read_named
from intarsia.data.own import from_csv, from_mapping, read_npz
from intarsia.data.raw import Raw, as_raw, check_sizes
from intarsia.data.scaling import check_kind
from intarsia.data.sources import DATASETS
from intarsia.data.splits import check_seed, check_share, stratified
from intarsia.errors import DataError, RecipeError, nearest
from intarsia.files import plain


def load_data(
    source: Any,
    y: Any = None,
    *,
    validation: float | None = None,
    test: float = 0.2,
    seed: int = 0,
    scale: str | None = None,
    classes: Sequence[Any] | Literal["all"] | None = None,
    labels: str = "fine",
    target: str | int | None = None,
    download: bool = True,
    progress: bool | None = None,
) -> Data:
    """Load `source`: a name (see DATASETS), a path (.npz, .csv), x with y, (x, y), or a mapping.

    `validation` is the share of the training part (0.2; yeast 0.1875, which makes 65/15/20), `test`
    the share of all rows, used only where the source has no test part. `classes` keeps the named
    classes in that order; yeast keeps its four largest unless told "all". `scale` is unit, signed,
    standard or none; by default unit for images, standard for tables, none for har.
    `labels="coarse"` gives cifar100's 20 groups. `target` is the label column of a .csv.
    """
    if isinstance(source, Data):
        return source
    classes = _names(classes)
    options = _changed(
        validation=validation, test=test, seed=seed, scale=scale, classes=classes, labels=labels,
        target=target,
    )  # fmt: skip
    test = check_share("test", test)
    seed = check_seed(seed)
    named = _named(source)
    if labels not in ("fine", "coarse") or (labels == "coarse" and named != "cifar100"):
        raise DataError(f"labels={labels!r}: only cifar100 has coarse labels; all have 'fine'")
    if named:
        _refuse(source, y=y, target=target)
        known = DATASETS[named]
        name, raw = named, read_named(named, labels, download, progress)
        default_scale, default_share, default_classes = known.scale, known.validation, known.keep
    else:
        name, raw = _own(source, y, target)
        default_scale = "unit" if raw.x.ndim > 2 else "standard"
        default_share, default_classes = 0.2, None
    share = check_share("validation", default_share if validation is None else validation)
    kind = check_kind(default_scale if scale is None else scale)
    wanted = default_classes if classes is None else classes
    if wanted is not None and not isinstance(wanted, str):
        raw = raw.keep(wanted, name)
    return replace(_cut(name, raw, share, test, seed, kind), options=options)


def check_options(options: Mapping[str, Any]) -> None:
    """Only what load_data takes by name, or an error with the nearest of these."""
    known = [key for key in inspect.signature(load_data).parameters if key not in ("source", "y")]
    for key in options:
        if key not in known:
            raise RecipeError(f"data has no option {key!r}: {nearest(key, known)}")


def _names(classes: Any) -> Any:
    """`classes` if it is None, "all" or a list, which an array becomes."""
    found = classes.tolist() if hasattr(classes, "tolist") else classes
    if found is None or found == "all" or isinstance(found, list | tuple):
        return found
    raise DataError(f"classes must be 'all' or a list of names, got {classes!r}")


def _changed(**options: Any) -> dict[str, Any]:
    known = inspect.signature(load_data).parameters
    values = {key: plain(value, key) for key, value in options.items()}
    return {key: value for key, value in values.items() if value != known[key].default}


def _cut(name: str, raw: Raw, validation: float, test: float, seed: int, scale: str) -> Data:
    own_test = raw.x_test is not None and raw.y_test is not None
    check_sizes(raw, 1 + (validation > 0) + (not own_test and test > 0), name)
    if own_test:
        rest, tested = np.arange(len(raw.y)), _split(raw.x_test, raw.y_test)
    else:
        rest, cut = stratified(raw.y, test, seed, stream=0, keep=1 + (validation > 0))
        tested = _split(raw.x[cut], raw.y[cut])
    kept, held = stratified(raw.y[rest], validation, seed, stream=1)
    train, validated = (_split(raw.x[rest[rows]], raw.y[rest[rows]]) for rows in (kept, held))
    return Data.build(name, raw.catalogue, train, validated, tested, scale)


def _split(x: np.ndarray | None, y: np.ndarray | None) -> Split:
    # A copy: the user's array must not change under the data, nor the data under the user's array.
    return Split(torch.tensor(x), torch.tensor(y, dtype=torch.int64))


def _named(source: Any) -> str | None:
    """The name of a known data set; None for everything that is not a name."""
    if not isinstance(source, str) or source.endswith((".npz", ".csv")) or os.sep in source:
        return None
    if source not in DATASETS:
        raise DataError(
            f"unknown data set {source!r}: {nearest(source, DATASETS)} "
            "(a file of your own must end in .npz or .csv)"
        )
    return source


def _own(source: Any, y: Any, target: str | int | None) -> tuple[str, Raw]:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.suffix == ".csv":
            _refuse(path, y=y)
            return path.stem, from_csv(path, target)
        _refuse(path, y=y, target=target)
        if path.suffix != ".npz":
            raise DataError(f"{path}: expected a file that ends in .npz or .csv")
        return path.stem, from_mapping(read_npz(path), str(path))
    _refuse("arrays", target=target)
    if isinstance(source, Mapping):
        _refuse("a mapping", y=y)
        return "arrays", from_mapping(source, "the mapping")
    if isinstance(source, tuple) and y is None:
        if len(source) != 2:
            raise DataError(f"a tuple of arrays must be (x, y), got {len(source)} items")
        source, y = source
    if y is None:
        raise DataError("labels are missing: give load_data(x, y), (x, y), a mapping or a path")
    return "arrays", as_raw("arrays", source, y)


def _refuse(source: Any, **given: Any) -> None:
    for key, value in given.items():
        if value is not None:
            raise DataError(f"{key}= has no meaning for {source}; leave it out")
