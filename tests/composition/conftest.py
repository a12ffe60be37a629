"""Small modules of one origin, as training would leave them: moved and masked."""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from intarsia.composition import MergeContext
from intarsia.data import Split
from intarsia.files import digest_of
from intarsia.models import initialise
from intarsia.modules import Module
from small_modules import small_module

CATALOGUE = ("a", "b", "c", "d")


def build_parts(
    count: int = 3,
    model: Any = "mlp(7)",
    shape: tuple[int, ...] = (6,),
    density: float = 0.5,
    disjoint: bool = False,
    rewarded: Sequence[Sequence[str]] | None = None,
) -> tuple[Module, ...]:
    """theta_i = m_i (theta0 + noise): masks of a density, or ones that share no entry."""
    origin = initialise(model, shape, len(CATALOGUE), seed=0)
    learned = {name for name, _ in origin.named_parameters()}
    state0 = {name: tensor.detach().clone() for name, tensor in origin.state_dict().items()}
    draw = torch.Generator().manual_seed(1)
    owner = {k: torch.randint(0, count, v.shape, generator=draw) for k, v in state0.items()}
    parts = []
    for i in range(count):
        state, mask = {}, {}
        for key, start in state0.items():
            if not start.is_floating_point():
                state[key] = start + i
                continue
            noise = torch.randn(start.shape, generator=draw) * 0.3
            kept = torch.rand(start.shape, generator=draw) < density
            state[key] = start + (noise if key in learned else noise.abs())
            if key in learned:
                mask[key] = owner[key] == i if disjoint else kept
                state[key] = torch.where(mask[key], state[key], 0)
        name = CATALOGUE[i]
        parts.append(
            small_module(
                name,
                state,
                mask,
                CATALOGUE,
                model,
                shape,
                rewarded=tuple(rewarded[i]) if rewarded else (name,),
                origin=digest_of("origin", state0),
                provenance={"seed": 0},
            )
        )
    return tuple(parts)


@pytest.fixture(scope="session")
def make_context() -> Callable[..., MergeContext]:
    """A merge context of such parts, with `samples` random raw inputs where asked for."""
    build = lru_cache(build_parts)

    def make(
        *args: Any, samples: int = 0, parts: tuple[Module, ...] = (), **kwargs: Any
    ) -> MergeContext:
        parts = parts or build(*args, **kwargs)
        if not samples:
            return MergeContext(parts)
        shape = parts[0].architecture.shape
        draw = torch.Generator().manual_seed(2)
        x = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=draw)
        return MergeContext(parts, Split(x, torch.full((samples,), -1)))

    return make


@pytest.fixture(scope="session")
def library() -> Callable[[str], ModuleType]:
    """`library("peft.utils.merge_utils")` imports it, or skips naming what is not installed.

    What we ask of the libraries needs torch only; their packages import all of transformers. So
    the packages on the way are taken for empty ones, except mergekit's, which is light.
    """

    @cache
    def find(name: str) -> ModuleType:
        package, *_ = path = name.split(".")
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            pytest.skip(f"needs {package}")
        empty = (
            {}
            if package == "mergekit"
            else {parent: ModuleType(parent) for parent in accumulate(path[:-1], "{}.{}".format)}
        )
        for parent, module in empty.items():
            module.__path__ = [str(Path(spec.origin).parents[1].joinpath(*parent.split(".")))]
        sys.modules.update(empty)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a library does on import is its own affair
                return importlib.import_module(name)
        finally:
            for parent in empty:
                del sys.modules[parent]

    return find
