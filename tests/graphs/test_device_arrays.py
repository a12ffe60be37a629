"""The same recurrences by torch as by numpy: on the CPU in its place, and on a GPU."""

import importlib

import networkx
import numpy as np
import pytest
import torch

from intarsia.graphs import (
    Graph,
    device_arrays,
    groups,
    heat_capacity,
    heat_kernel,
    read_graph,
    spectrum,
)

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
WAYS = [pytest.param("cpu", id="torch"), pytest.param("cuda", id="cuda", marks=on_gpu)]


@pytest.fixture
def two_parts() -> Graph:
    parts = [networkx.barabasi_albert_graph(40, 2, seed=seed) for seed in (0, 1)]
    return read_graph(networkx.disjoint_union(*parts))


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are used whatever the device."""
    monkeypatch.setattr(device_arrays, "is_cpu", lambda device: False)
    monkeypatch.setattr(
        importlib.import_module("intarsia.graphs.heat_kernel"), "is_cpu", lambda device: False
    )


@pytest.mark.parametrize("device", WAYS)
def test_columns_are_the_same(
    two_parts: Graph, device: str, request: pytest.FixtureRequest
) -> None:
    expected = heat_kernel(two_parts, 0.7, method="chebyshev").columns(range(80))
    request.getfixturevalue("by_torch")
    kernel = heat_kernel(two_parts, 0.7, method="chebyshev", device=device)
    assert isinstance(device_arrays.on_device(np.zeros(1), device), torch.Tensor)
    assert np.abs(kernel.columns(range(80)) - expected).max() < 1e-12
    single = np.concatenate([own for _, own in kernel.blocks(dtype=np.float32)], axis=1)
    assert single.dtype == np.float32
    assert 0 < np.abs(single - expected).max() < 1e-5


@pytest.mark.parametrize("device", WAYS)
def test_spectra_and_groups_are_the_same(
    two_parts: Graph, device: str, request: pytest.FixtureRequest
) -> None:
    settings = {"method": "lanczos", "probes": 8, "steps": 20}
    expected = heat_capacity(spectrum(two_parts, **settings))
    relation = groups(two_parts, 0.7, method="chebyshev").relation
    request.getfixturevalue("by_torch")
    curve = heat_capacity(spectrum(two_parts, **settings, device=device))
    assert np.allclose(curve.values, expected.values, atol=1e-8)
    assert (groups(two_parts, 0.7, method="chebyshev", device=device).relation != relation).nnz == 0
