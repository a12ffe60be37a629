"""Sources of samples: the name of a law, a table of numbers in a file, or a data set."""

import csv
from pathlib import Path

import numpy as np
from torch import Tensor

from intarsia.data import DATASETS, load_data
from intarsia.data.arrays import read_npz
from intarsia.data.sources.budget import file_size
from intarsia.data.sources.tabular import is_number_text
from intarsia.errors import DataError, RecipeError, nearest
from intarsia.flow.cumulants import samples_of
from intarsia.flow.laws import LAWS, draw
from intarsia.specs import name_of

X = "x"  # the array of an .npz that is read where there are several


def read_source(source: str, *, samples: int = 2**16, seed: int = 0) -> Tensor:
    """Samples as N x D: so many draws of a law, all numbers of a .csv or .npz, or a data set's
    training inputs as they were before any scaling.

    A .csv has a sample for each row and may have a header; of an .npz the array `x` is read, or
    the only one.
    """
    if name_of(source) in LAWS:
        if type(samples) is not int or samples < 1:
            raise RecipeError(f"samples is {samples}: expected a whole number from 1")
        return draw(source, samples, 1, seed=seed)
    path = Path(source)
    if path.suffix == ".npz":
        return _of_arrays(path)
    if path.suffix == ".csv":
        return _of_csv(path)
    if source not in DATASETS and not path.exists():
        known = [*LAWS, *DATASETS]
        raise DataError(f"there is no law, data set or file {source!r}: {nearest(source, known)}")
    return samples_of(load_data(source).train.x)


def _of_arrays(path: Path) -> Tensor:
    arrays = read_npz(path)
    if X not in arrays and len(arrays) != 1:
        raise DataError(
            f"{path} has the arrays {', '.join(sorted(arrays)) or 'none'}: expected one called "
            f"{X!r}, or a single one"
        )
    return _named(path, arrays[X] if X in arrays else next(iter(arrays.values())))


def _of_csv(path: Path) -> Tensor:
    file_size(path)  # what is no file is refused
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DataError(f"{path} cannot be read as .csv: {error}") from None
    if rows and not any(map(is_number_text, rows[0])):
        rows = rows[1:]
    if not rows:
        raise DataError(f"{path} has no row of numbers")
    for place, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}: row {place} of numbers has {len(row)} cells and row 0 has "
                f"{len(rows[0])}: every sample needs as many"
            )
        bad = next((cell for cell in row if not is_number_text(cell)), None)
        if bad is not None:
            raise DataError(
                f"{path}: row {place} of numbers has {bad[:40]!r}, which is not a number: keep "
                "numbers alone"
            )
    return _named(path, np.array(rows, dtype=np.float64))


def _named(path: Path, array: np.ndarray) -> Tensor:
    try:
        return samples_of(array)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
