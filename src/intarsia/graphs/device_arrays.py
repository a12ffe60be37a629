"""Columns of numbers where they are computed: numpy's on the CPU, torch's on another device.

Both know the same operators, so that a recurrence is written once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def is_cpu(device: str) -> bool:
    """Whether numpy's arrays serve."""
    return torch.device(device).type == "cpu"


def on_device(columns: np.ndarray, device: str) -> Any:
    """An array as it is for the CPU, else a tensor there."""
    if is_cpu(device):
        return columns
    return torch.from_numpy(columns).to(device)


def on_host(columns: Any) -> np.ndarray:
    """The array of either."""
    return columns.cpu().numpy() if isinstance(columns, Tensor) else np.asarray(columns)


def product(matrix: sp.csr_array, device: str) -> Callable[[Any], Any]:
    """What multiplies columns on the device by a sparse matrix, in the type of its numbers."""
    if is_cpu(device):  # scipy's product frees Python's lock, torch's warns
        return lambda columns: matrix @ columns
    moved = sparse_tensor(matrix).to(device)
    return lambda columns: torch.sparse.mm(moved, columns)


def sparse_tensor(matrix: sp.csr_array) -> Tensor:
    """The same matrix as torch has it."""
    entries = matrix.tocoo()
    place = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    values = torch.from_numpy(entries.data)
    return torch.sparse_coo_tensor(
        place, values, matrix.shape, is_coalesced=True, check_invariants=False
    )
