"""Small graphs that tests share."""

import numpy as np
import pytest

from intarsia.graphs import Graph, NodeData, node_data, read_graph
from planted_nodes import planted


@pytest.fixture
def tree() -> Graph:
    """Each of 60 nodes hangs on an earlier one."""
    draw = np.random.default_rng(0)
    return read_graph([(int(draw.integers(0, n)), n) for n in range(1, 60)])


@pytest.fixture(scope="module")
def nodes() -> NodeData:
    """Three blocks of 20 nodes, dense within and sparse between, with features that hint."""
    return node_data(planted(), "planted")
