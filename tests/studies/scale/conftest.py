"""The colours, and banks trained on them."""

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from colour_data import NAME, colours_known, register_colours

import intarsia as ia
from intarsia.errors import HealthWarning

DENSE = {"sparsity": 0, "rounds": 0, "epochs": 3, "batch": 32, "learning_rate": 1e-2}


@pytest.fixture(autouse=True)
def colours(registries: None) -> str:
    """The data set by its name, while a test runs."""
    register_colours()
    return NAME


@pytest.fixture(scope="package")
def data() -> ia.Data:
    with colours_known():
        return ia.load_data(NAME)


@pytest.fixture(scope="package")
def bank(data: ia.Data) -> ia.Bank:
    """A module of a small network with BatchNorm for each class."""
    return _trained(data)


@pytest.fixture(scope="package")
def pruned(data: ia.Data) -> ia.Bank:
    """The same with most weights gone, and with them some units."""
    return _trained(data, sparsity=0.9, rounds=1)


@pytest.fixture(scope="package")
def residual(data: ia.Data) -> ia.Bank:
    """Pruned modules of a network with shortcuts, hardly trained."""
    more = {"model": "resnet18(2)", "epochs": 1, "batch": 98}
    return _trained(data, sparsity=0.8, rounds=1, **more)


def _trained(data: ia.Data, **more: Any) -> ia.Bank:
    settings = {"preset": "paper", "model": "vgg11(4)", "progress": False, "device": "cpu"}
    with warnings.catch_warnings(action="ignore", category=HealthWarning):
        return ia.train(data, **{**settings, **DENSE, **more})
