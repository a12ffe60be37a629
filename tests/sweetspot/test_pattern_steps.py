"""The step of a stack: gradients against autograd, Adam against torch, Muon against an SVD."""

from itertools import chain
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia.errors import RecipeError
from intarsia.sweetspot import PATTERN_OPTIMISERS, PatternLayout, initial_bank
from intarsia.sweetspot.networks import ACTIVATIONS, coordinates, forward
from intarsia.sweetspot.pattern_steps import (
    PatternStack,
    StepBuffers,
    loss_and_gradients,
    matrices_of,
    orthogonalised,
    table_of,
)
from intarsia.sweetspot.pictures import rgb

LAYOUT = PatternLayout(tuple((name, 2) for name in ACTIVATIONS), 3)
INPUTS = coordinates(7)


def table(networks: int, scale: float = 0.6, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return scale * torch.randn(networks, LAYOUT.parameters, generator=draw)


def target(seed: int = 1) -> torch.Tensor:
    return torch.rand(3, 49, generator=torch.Generator().manual_seed(seed))


def reference_gradient(weights: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Loss of each network and its gradient, by autograd."""
    weights = weights.clone().requires_grad_()
    outputs, _ = forward(LAYOUT, matrices_of(LAYOUT, weights), INPUTS)
    loss = (rgb(outputs) - wanted).square().mean((1, 2))
    return loss.detach(), torch.autograd.grad(loss.sum(), weights)[0]


def stack(
    weights: torch.Tensor,
    optimiser: str = "adam",
    wanted: torch.Tensor | None = None,
    **settings: object,
) -> PatternStack:
    given = {
        "free": None,
        "learning_rates": torch.full((len(weights),), 1e-2),
        "factors": torch.ones(50),
        **settings,
    }
    spec = PATTERN_OPTIMISERS.spec(optimiser)
    return PatternStack(
        LAYOUT, weights.clone(), inputs=INPUTS, target=target() if wanted is None else wanted,
        optimiser=PATTERN_OPTIMISERS.call(spec), **given,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("scale", [0.05, 0.6, 2.0])
def test_gradients_are_those_of_autograd(scale: float) -> None:
    weights = table(4, scale)
    loss, gradients = loss_and_gradients(LAYOUT, matrices_of(LAYOUT, weights), INPUTS, target())
    expected_loss, expected = reference_gradient(weights, target())
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(table_of(gradients), expected, atol=1e-5, rtol=1e-3)


def test_what_a_step_left_in_its_buffers_does_not_matter() -> None:
    weights = table(4)
    matrices = matrices_of(LAYOUT, weights)
    fresh_loss, fresh = loss_and_gradients(LAYOUT, matrices, INPUTS, target())
    buffers = StepBuffers(LAYOUT, 4, INPUTS.shape[1], weights)
    kept = [*buffers.maps, *chain(*buffers.slopes), *buffers.upstream, *buffers.gradients]
    for tensor in kept:
        tensor.fill_(torch.nan)
    for _ in range(2):
        loss, gradients = loss_and_gradients(LAYOUT, matrices, INPUTS, target(), buffers)
        assert torch.equal(loss, fresh_loss)
        assert torch.equal(table_of(gradients), table_of(fresh))


@pytest.mark.parametrize("pixels", [None, 300])
def test_a_step_takes_no_new_memory_for_maps(pixels: int | None) -> None:
    """Fresh pages cost about as much as what is computed in them."""
    layout, inputs = PatternLayout("cache 12, gaussian 4, sin 4", 6), coordinates(32)
    weights = table_of(initial_bank(layout, 3).weights)
    ours = PatternStack(
        layout, weights, None, torch.full((3,), 1e-3), torch.ones(5), inputs,
        torch.rand(3, inputs.shape[1]), PATTERN_OPTIMISERS.call(PATTERN_OPTIMISERS.spec("adam")),
        pixels,
    )  # fmt: skip
    with torch.profiler.profile(profile_memory=True) as profiled:
        ours.step()
    sizes = [e.self_cpu_memory_usage for e in profiled.events()]
    assert max(sizes) > 0
    assert max(sizes) < 4 * 3 * layout.width * ours.buffers.maps[0].shape[2]  # bytes of one layer


def test_views_of_a_table_are_its_matrices() -> None:
    weights = table(3)
    matrices = matrices_of(LAYOUT, weights)
    assert [tuple(m.shape[1:]) for m in matrices] == LAYOUT.shapes
    assert torch.equal(table_of(matrices), weights)
    matrices[1].zero_()
    assert not weights.all()


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("normalise", [True, False])
def test_adam_is_that_of_torch(
    normalise: bool, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each network by itself, the gradient of its free weights over its norm.

    In double precision: where a hue wraps around, the last digit decides where a pixel pulls.
    """
    wanted, inputs = target().double(), INPUTS.double()
    monkeypatch.setitem(globals(), "INPUTS", inputs)
    begun, rates = table(3, 0.3).double(), torch.tensor([1e-3, 3e-4, 1e-4])
    free = torch.ones_like(begun)
    free[:, ::3] = 0 if masked else 1
    settings = {"learning_rates": rates, "normalise": normalise, "free": free if masked else None}
    ours = stack(begun, wanted=wanted, **settings)  # type: ignore[arg-type]
    ours.run(4)
    for row, rate in enumerate(rates):
        alone = begun[row : row + 1].clone().requires_grad_()
        optimiser = torch.optim.Adam([alone], lr=float(rate))
        for _ in range(4):
            _, gradient = reference_gradient(alone.detach(), wanted)
            gradient *= free[row]
            alone.grad = gradient / gradient.norm() if normalise else gradient
            optimiser.step()
        torch.testing.assert_close(ours.weights[row], alone.detach()[0], atol=1e-6, rtol=0)
        assert float((alone.detach() - begun[row]).abs().max()) > float(rate)


@pytest.mark.parametrize("optimiser", ["adam", "muon", "muon(steps=2, momentum=0.5)"])
def test_what_is_not_free_never_moves(optimiser: str) -> None:
    begun = table(2)
    free = (torch.rand(begun.shape, generator=torch.Generator().manual_seed(3)) > 0.5).float()
    ours = stack(begun, optimiser, free=free)
    ours.run(4)
    moved = ours.weights != begun
    assert not moved[free == 0].any()
    assert moved[free == 1].float().mean() > 0.5


def test_schedules_scale_the_step() -> None:
    factors = torch.tensor([1.0, 0.0, 0.0, 1.0])
    ours = stack(table(1), factors=factors)
    seen = []
    for _ in range(4):
        before = ours.weights.clone()
        ours.run(1)
        seen.append(not torch.equal(before, ours.weights))
    assert seen == [True, False, False, True]


def test_a_gradient_without_a_norm_moves_nothing() -> None:
    """Black pictures: value and saturation are flat, so that nothing tells where to go."""
    begun = torch.zeros(1, LAYOUT.parameters)
    ours = stack(begun)
    ours.run(2)
    assert bool(ours.weights.isfinite().all())
    assert not ours.weights.any()


def test_newton_schulz_comes_near_the_orthogonal_factor() -> None:
    draw = torch.Generator().manual_seed(0)
    for shape in [(2, 3, 6, 6), (4, 9, 3), (1, 3, 9)]:
        matrices = torch.randn(shape, generator=draw)
        u, _, v = torch.linalg.svd(matrices, full_matrices=False)
        near = orthogonalised(matrices, 10)
        assert near.shape == matrices.shape
        values = torch.linalg.svdvals(near)
        assert float(values.min()) > 0.6
        assert float(values.max()) < 1.3
        alike = (near * (u @ v)).sum((-1, -2)) / (
            near.norm(dim=(-1, -2)) * (u @ v).norm(dim=(-1, -2))
        )
        assert float(alike.min()) > 0.95
    assert not orthogonalised(torch.zeros(2, 3, 4), 5).any()


def test_muon_orthogonalises_every_matrix() -> None:
    begun = table(2)
    ours = stack(begun, "muon(steps=8)", normalise=False)
    ours.run(1)
    changes = matrices_of(LAYOUT, (begun - ours.weights) / 1e-2)
    for change, (outputs, inputs) in zip(changes, LAYOUT.shapes, strict=True):
        values = torch.linalg.svdvals(change) / max(1.0, outputs / inputs) ** 0.5
        assert float(values.max()) < 1.3
        assert float(values[:, 0].min()) > 0.6


@pytest.mark.parametrize(
    "optimiser", ["muon(0)", "muon(1.5)", "muon(momentum=1)", "adam(beta1=-1)", "adam(epsilon=2)"]
)
def test_settings_that_cannot_be_used(optimiser: str) -> None:
    spec = PATTERN_OPTIMISERS.spec(optimiser)
    with pytest.raises(RecipeError, match="expected"):
        PATTERN_OPTIMISERS.call(spec)


class _Names(TorchDispatchMode):
    """Writes down every operator that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
@pytest.mark.parametrize("pixels", [None, 5])
def test_a_step_looks_at_no_value(optimiser: str, pixels: int | None) -> None:
    """Else the host would wait for a GPU, and a step could not be recorded."""
    ours = stack(table(2), optimiser, free=torch.ones(2, LAYOUT.parameters), pixels=pixels)
    with _Names() as seen:
        ours.step()
    assert "aten.bmm.out" in seen.names
    looks = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "scalar_tensor")
    assert not [name for name in seen.names if any(look in name for look in looks)]


def test_a_warm_up_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any machine: streams are stand-ins, and the second step runs out of memory."""
    from contextlib import nullcontext
    from unittest.mock import MagicMock

    layout = PatternLayout((("cache", 2), ("sin", 1)), 2)
    weights = table_of(initial_bank(layout, 2).weights)
    inputs, target = coordinates(4), torch.rand(3, 16)
    optimiser = PATTERN_OPTIMISERS.call(PATTERN_OPTIMISERS.spec("adam"))
    rates = torch.full((2,), 0.1)
    stack = PatternStack(layout, weights, None, rates, torch.ones(5), inputs, target, optimiser)
    before = {name: tensor.clone() for name, tensor in stack.tensors().items()}
    step, left = stack.step, [1]

    def failing() -> None:
        if not left[0]:
            raise RuntimeError("CUDA out of memory")
        left[0] -= 1
        step()

    monkeypatch.setattr(stack, "step", failing)
    monkeypatch.setattr(torch.cuda, "Stream", MagicMock())
    monkeypatch.setattr(torch.cuda, "current_stream", MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    with pytest.raises(RuntimeError, match="out of memory"):
        stack.capture()
    assert left == [0]
    for name, tensor in stack.tensors().items():
        assert torch.equal(tensor, before[name]), name
