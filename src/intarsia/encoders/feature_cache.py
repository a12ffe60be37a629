"""Features computed once: in chunks that are each kept in the cache, so that a run goes on."""

import hashlib
import os
import warnings
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from intarsia.encoders.encoder import Encoder
from intarsia.errors import DataError, FileError, FileWarning
from intarsia.files import cache_folder, canonical, digest_of, is_no_file, write_whole
from intarsia.process import progress_bar

CHUNK = 512  # rows of a file in the cache


def cached_features(
    encoder: Encoder, x: np.ndarray, progress: bool | None = None, device: str | None = None
) -> np.ndarray:
    """The features of raw inputs, N x features in float32, from the cache where they lie there.

    Each chunk of rows has a file of its own, named by the encoder and the rows, and is written
    whole as soon as it is computed: a run that is stopped goes on where it was. They are computed
    on a GPU if there is one. `progress` None shows a bar on a terminal only.
    """
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    features = np.empty((len(x), encoder.features), np.float32)
    with progress_bar("features", len(x), progress) as advance:
        for start in range(0, len(x), CHUNK):
            rows = x[start : start + CHUNK]
            path = _path(encoder, rows)
            known = _read(path, (len(rows), encoder.features))
            if known is None:
                known = encoder(torch.tensor(rows), place).cpu()
                _write(path, known)
            features[start : start + len(rows)] = known.numpy()
            advance(len(rows))
    return features


def _path(encoder: Encoder, rows: np.ndarray) -> Path:
    array = np.ascontiguousarray(rows)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    about = canonical([encoder.identity, array.dtype.str, list(array.shape)])
    sha = hashlib.sha256(about.encode())
    sha.update(array.data)
    name = sha.hexdigest()
    return cache_folder() / "features" / name[:2] / f"{name}.safetensors"


def _read(path: Path, shape: tuple[int, int]) -> Tensor | None:
    """A chunk that was written before; None where there is none, or it is damaged."""
    if not os.path.lexists(path):
        return None
    try:
        tensors = {} if is_no_file(path) else safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError, ValueError):
        tensors = {}
    features, seal = tensors.get("features"), tensors.get("sha256")
    if (
        features is not None
        and seal is not None
        and features.shape == shape
        and features.dtype == torch.float32
        and torch.equal(seal, _seal(features))
    ):
        return features
    warnings.warn(f"{path} is damaged: its features are computed again", FileWarning, stacklevel=4)
    return None


def _write(path: Path, features: Tensor) -> None:
    tensors = {"features": features.contiguous(), "sha256": _seal(features)}
    try:
        write_whole(path, safetensors.torch.save(tensors))
    except FileError as error:
        raise DataError(f"{error}; or name another folder with INTARSIA_CACHE") from error


def _seal(features: Tensor) -> Tensor:
    digest = bytes.fromhex(digest_of("features", {"features": features}))
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)
