"""For PyTorch Geometric: a transform that adds rewired graphs to its Data, and its folders."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.data.sources.budget import check_entries, file_size
from intarsia.errors import DataError, RecipeError, shortened
from intarsia.graphs.adjacency import read_graph
from intarsia.graphs.heat_kernel import MEMORY
from intarsia.graphs.heat_spectrum import KINDS, check_tau, find_scale
from intarsia.graphs.rewiring import rewire

ADDED = "edge_index_{}"  # PyG counts nodes on where the name of an attribute has "index" in it


class Renormalise:
    """A transform of PyTorch Geometric that adds the graph rewired at its characteristic scale.

    `tau` is a number, "auto" for the first of the `scales` of this `kind` in the largest component,
    or several of these. The graphs become `edge_index_1`, `edge_index_2`, ... of a copy of the
    data, and `tau` the times; `graphs_of(data)` has them all for `MultiScale`. With
    `replace=True` the one graph takes the place of `edge_index`. Nodes stay as they are.
    """

    def __init__(
        self,
        tau: float | str | Sequence[float | str] = "auto",
        *,
        kind: str = "published",
        replace: bool = False,
        directed: bool = False,
        weighted: bool = False,
        memory: float = MEMORY,
    ) -> None:
        several = np.ndim(tau) > 0  # a list, a tuple or an array
        self.taus = [
            own if own == "auto" else check_tau(own)
            for own in (tau if several else [tau])  # type: ignore[union-attr]
        ]
        if kind not in KINDS:
            raise RecipeError(f"kind is {shortened(kind)}: use {' or '.join(map(repr, KINDS))}")
        if not self.taus or (replace and len(self.taus) > 1):
            raise RecipeError(f"tau is {shortened(tau)}: one is expected, or several to be added")
        self.kind, self.replace, self.memory = kind, replace, memory
        self.reading: dict[str, Any] = {"directed": directed, "weighted": weighted}

    def __call__(self, data: Any) -> Any:
        """A copy of the data with the graphs."""
        graph = read_graph(data, **self.reading)
        device = data.edge_index.device
        times, changed = [], copy.copy(data)
        for place, tau in enumerate(self.taus, start=1):
            auto = tau == "auto"
            time = find_scale(graph.largest_component(), self.kind) if auto else check_tau(tau)
            edge_index = rewire(graph, time, memory=self.memory).edge_index.to(device)
            changed["edge_index" if self.replace else ADDED.format(place)] = edge_index
            times.append(time)
        changed.tau = torch.tensor(times)
        if self.replace:
            for key in ("edge_weight", "edge_attr"):  # of edges that are no more
                if getattr(changed, key, None) is not None:
                    del changed[key]
        return changed

    def __repr__(self) -> str:
        return f"Renormalise(tau={self.taus}, kind={self.kind!r})"


def graphs_of(data: Any) -> list[Tensor]:
    """The graph of the data and those that `Renormalise` added, as `MultiScale` takes them."""
    own = getattr(data, "edge_index", None)
    if own is None:
        raise DataError(
            f"the {type(data).__name__} has no edge_index: give Data of PyTorch Geometric, of one "
            "kind of nodes"
        )
    found, place = [own], 1
    while (added := getattr(data, ADDED.format(place), None)) is not None:
        found.append(added)
        place += 1
    return found


def read_processed(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a data set that PyTorch Geometric has processed: x, edges, labels, masks.

    Read without running what a pickle may ask for: classes other than PyG's own are refused. What
    its tensors would unpack to is counted first: a shape may say anything.
    """
    size = file_size(path)
    try:
        import torch_geometric  # noqa: F401  # allows torch to read its classes
    except ImportError as error:
        raise DataError(
            f"{path} is read with PyTorch Geometric: pip install 'intarsia[graphs]'"
        ) from error
    try:
        content = torch.load(path, weights_only=True)
        fields = content[0] if isinstance(content, tuple) else content
        fields = fields if isinstance(fields, dict) else fields.to_dict()
        tensors = [value for value in fields.values() if isinstance(value, Tensor)]
        check_entries(sum(tensor.numel() for tensor in tensors), size, path)
        arrays = {"edges": fields["edge_index"].T.numpy(), "labels": fields["y"].numpy()}
        if fields.get("x") is not None:
            arrays["x"] = fields["x"].to_dense().numpy()
        for part in ("train", "val", "test"):
            mask = fields.get(f"{part}_mask")
            if mask is not None and mask.ndim == 1:
                arrays[f"{part}_idx"] = np.flatnonzero(mask.numpy())
        return arrays
    except DataError:
        raise
    except Exception as error:  # of a file that may hold anything
        raise DataError(
            f"{path} is not a single graph that PyTorch Geometric has processed "
            f"({str(error)[:200]}): process it anew"
        ) from error
