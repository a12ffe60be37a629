"""Where a named data set comes from: INTARSIA_DATA, then the cache, then its publisher."""

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.data.arrays import Raw, from_mapping, read_npz
from intarsia.data.sources.datasets import DATASETS, File
from intarsia.data.sources.fetch import fetch, matches
from intarsia.data.texts import Tokens, tokenised
from intarsia.errors import DataError, FileError
from intarsia.files import cache_folder, write_whole

_SEAL = "sha256"  # the array of a cached file that holds the digest of all others


def read_named(
    name: str,
    labels: str,
    download: bool,
    progress: bool | None,
    groups: str | int | None = None,
    tokens: Tokens | None = None,
) -> Raw:
    """The arrays of a known data set, checked against what is known about it."""
    known = DATASETS[name]
    if known.files:
        path = locate(name) or _obtain(name, download, progress)
        where, arrays = str(path), _unsealed(read_npz(path), path)
    else:
        where, arrays = name, _checked(name, known())
    if labels == "coarse":
        arrays = _coarse(arrays, where)
    raw = from_mapping(tokenised(arrays, tokens, where), where, groups=groups)
    classes = known.coarse_classes if labels == "coarse" else known.classes
    shape, size = raw.x.shape[1:], len(raw.catalogue)
    if (known.shape or shape, classes or size) != (shape, size):
        raise DataError(
            f"{where} is not {name}: its inputs have shape {shape} and {size} classes, "
            f"expected {known.shape} and {classes}"
        )
    return raw


def locate(name: str) -> Path | None:
    """The NAME.npz that `load_data(name)` reads without a download, if there is one."""
    folder = os.environ.get("INTARSIA_DATA")
    places = ([Path(folder).expanduser()] if folder else []) + [cache_folder()]
    return next((p for place in places if (p := place / f"{name}.npz").is_file()), None)


def _obtain(name: str, download: bool, progress: bool | None) -> Path:
    """Fetch what is missing of the published files and keep their arrays in the cache."""
    known = DATASETS[name]
    folder = cache_folder() / "published" / name
    missing = [file for file in known.files if not _is_there(folder / file.name, file)]
    if missing and not download:
        raise DataError(_advice(name, folder, missing, "downloads are switched off"))
    for file in missing:
        _fetch_any(name, folder, file, missing, progress)
    path = cache_folder() / f"{name}.npz"
    _save(path, _checked(name, known(*(folder / file.name for file in known.files))))
    for file in missing:  # what the user put there stays
        (folder / file.name).unlink(missing_ok=True)
    return path


def _checked(name: str, arrays: Any) -> dict[str, Any]:
    if not isinstance(arrays, Mapping):
        raise DataError(
            f"the function of data set {name!r} returned a {type(arrays).__name__}: expected a "
            "mapping with x_train, y_train, x_test, y_test, or x, y; and classes"
        )
    return dict(arrays)


def _fetch_any(
    name: str, folder: Path, file: File, missing: list[File], progress: bool | None
) -> None:
    reasons = []
    for address, digest in file.copies:
        try:
            return fetch(address, folder / file.name, digest, progress)
        except DataError as error:
            reasons.append(str(error))
    raise DataError(_advice(name, folder, missing, "; ".join(reasons)))


def _is_there(path: Path, file: File) -> bool:
    try:
        return path.is_file() and any(matches(path, digest) for _, digest in file.copies)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _advice(name: str, folder: Path, missing: list[File], reason: str) -> str:
    keys = "x_train, y_train, x_test, y_test" if DATASETS[name].own_test else "x, y"
    data = os.environ.get("INTARSIA_DATA")
    place = data or "a folder of yours that the environment variable INTARSIA_DATA names"
    files = "\n".join(f"    {file.name}  from  {file.copies[0][0]}" for file in missing)
    return (
        f"{name} is not on this machine and was not fetched ({reason}).\n"
        f"Either put {name}.npz (arrays {keys}, classes) in {place},\n"
        f"or put these published files in {folder}:\n{files}\nand load it again."
    )


def _coarse(arrays: dict[str, Any], where: str) -> dict[str, Any]:
    keys = {"y_train_coarse": "y_train", "y_test_coarse": "y_test", "coarse_classes": "classes"}
    for key in keys:
        if key not in arrays:
            raise DataError(f"{where} has no array {key!r}, so it has no coarse labels")
    return arrays | {plain: arrays[key] for key, plain in keys.items()}


def _save(path: Path, arrays: dict[str, Any]) -> None:
    content = io.BytesIO()
    try:
        np.savez(content, allow_pickle=False, **arrays, **{_SEAL: np.array(_digest(arrays))})
        write_whole(path, content.getbuffer())
    except FileError as error:
        raise DataError(f"{error}; or name another folder with INTARSIA_CACHE") from error
    except ValueError as error:  # objects, which only pickle could hold
        raise DataError(
            f"the arrays of {path.stem} are not plain numbers or text: {error}"
        ) from error


def _unsealed(arrays: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """The arrays without their digest, which must be theirs; a file of the user's own has none."""
    seal = arrays.pop(_SEAL, None)
    if seal is not None and (seal.shape != () or str(seal) != _digest(arrays)):
        raise DataError(
            f"{path} was altered since it was written: its arrays do not have the digest that it "
            "names. Remove it, and load it again"
        )
    return arrays


def _digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 over name, type, shape and bytes of every array."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        if values.dtype.hasobject:
            raise ValueError(f"{name} is an array of objects")
        sha.update(f"{name} {values.dtype.str} {np.shape(arrays[name])}\n".encode())
        sha.update(values.reshape(-1).view(np.uint8).data if values.size else b"")
    return sha.hexdigest()
