"""Networks under vmap: a stack of K states equals a loop over K modules, statistics included."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from intarsia.models import initialise

STACK, BATCH = 3, 4


def custom(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Plain BatchNorm layers of torch, in two and in one dimension."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 5, 3),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(20, 6),
        nn.BatchNorm1d(6, momentum=0.3),
        nn.Linear(6, outputs),
    )


@pytest.mark.parametrize(
    "model", ["mlp(8, dropout=0)", "resnet18(4)", "vgg11(4)", "fastnet(4)", custom]
)
@pytest.mark.parametrize("side", [28, 32])
def test_a_training_step_on_a_stack_equals_a_loop(model: object, side: int) -> None:
    shape = (3, side, side)
    # double precision: BatchNorm over four images of one pixel magnifies rounding
    networks = [initialise(model, shape, 5, seed).double() for seed in range(STACK)]
    generator = torch.Generator().manual_seed(0)
    xs = torch.rand(STACK, 2, BATCH, *shape, generator=generator, dtype=torch.float64)
    parameters, buffers = stack_module_state(networks)
    skeleton = copy.deepcopy(networks[0]).to("meta").train()

    def forward(state: dict[str, Tensor], statistics: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(skeleton, (state, statistics), (x,))

    for step in range(2):
        for network, x in zip(networks, xs[:, step], strict=True):
            network.train().zero_grad()
            network(x).square().mean().backward()
        logits = vmap(forward)(parameters, buffers, xs[:, step])
        gradients = torch.autograd.grad(
            logits.square().mean((1, 2)).sum(), list(parameters.values())
        )

    for k, network in enumerate(networks):
        for (name, parameter), gradient in zip(network.named_parameters(), gradients, strict=True):
            torch.testing.assert_close(
                gradient[k],
                parameter.grad,
                rtol=1e-8,
                atol=1e-10,
                msg=lambda m, n=name: f"{n}: {m}",
            )
        for name, buffer in network.named_buffers():
            torch.testing.assert_close(buffers[name][k], buffer, rtol=1e-9, atol=1e-12)
            if name.endswith("num_batches_tracked"):
                assert buffers[name][k] == 2


@pytest.mark.parametrize("model", ["lenet", "resnet18(4)", "vgg11(4)", "fastnet(4)", custom])
@pytest.mark.parametrize("training", [True, False])
def test_logits_and_statistics_of_a_stack_equal_a_loop(model: object, training: bool) -> None:
    networks = [initialise(model, (3, 16, 16), 5, seed).train(training) for seed in range(STACK)]
    parameters, buffers = stack_module_state(networks)
    skeleton = copy.deepcopy(networks[0])
    x = torch.rand(16, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        stacked = vmap(
            lambda state, statistics: functional_call(skeleton, (state, statistics), (x,))
        )(parameters, buffers)
        loop = torch.stack([network(x) for network in networks])
    torch.testing.assert_close(stacked, loop, rtol=1e-5, atol=1e-5)
    for name in buffers:
        expected = torch.stack([dict(network.named_buffers())[name] for network in networks])
        torch.testing.assert_close(buffers[name], expected, rtol=1e-5, atol=1e-5)
