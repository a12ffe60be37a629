"""Grouped convolution and normalisation by our kernels against torch's own.

Without a GPU they run in Triton's interpreter, in float32, which it can multiply: once, in a
process of its own, since Triton takes the interpreter up when it is imported. This file as a script
prints what the tests then judge. With a GPU they run there as well, in bf16.
"""

import json
from functools import partial
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.func import functional_call

import intarsia as ia
from intarsia.models.convolutional import ResidualBlock
from intarsia.training.engines import grouped

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# modules, channels, outputs, side, stride, padding; samples, height, width
CONVOLUTIONS = {
    "three modules": (3, 16, 16, 3, 1, 1, 3, 5, 7),
    "strips of rows": (1, 16, 16, 3, 1, 1, 1, 19, 3),
    "few channels": (3, 8, 12, 3, 1, 1, 2, 4, 5),
    "stride 2": (1, 16, 32, 3, 2, 1, 2, 6, 6),
    "stride 2, odd": (3, 8, 16, 3, 2, 1, 3, 7, 5),
    "shortcut": (2, 16, 24, 1, 2, 0, 2, 5, 4),
    "1 x 1": (2, 16, 16, 1, 1, 0, 1, 3, 4),
    "no padding": (2, 16, 16, 3, 1, 0, 1, 5, 4),
    "rows apart": (2, 64, 40, 3, 1, 1, 1, 3, 4),
    "taps apart": (1, 72, 128, 3, 2, 1, 1, 3, 3),
}
# channels, ReLU, residual
NORMS = {
    "plain": (16, False, False),
    "relu": (40, True, False),
    "residual": (48, False, True),
    "both": (24, True, True),
}


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(grouped, "KERNELS", True)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_and_its_gradients_equal_those_of_torch(result, case):
    assert max(result["convolutions"][case]) < 1e-5, result["convolutions"][case]


@pytest.mark.parametrize("case", NORMS)
def test_a_normalisation_its_gradients_and_running_statistics_equal_those_of_torch(result, case):
    """Also where the mean is large beside the deviation: 20 times here."""
    assert max(result["norms"][case]) < 1e-5, result["norms"][case]


def test_a_module_has_the_same_bits_in_any_bank(result):
    assert result["alone"] == [True] * 6


def test_layers_of_a_network_hand_on_to_the_kernels(result):
    """Outputs, gradients and statistics of a block with a shortcut, two of them side by side.

    The convolution that reads the samples, which both share, is torch's.
    """
    assert result["block"]["calls"] == {"convolve": 3, "normalise": 4}
    assert max(result["block"]["distances"]) < 1e-4, result["block"]["distances"]


def test_a_network_by_itself_hands_its_normalisations_on_to_the_kernels(result):
    """With the ReLU and the residual behind them; convolutions stay torch's."""
    assert result["single block"]["calls"] == {"convolve": 0, "normalise": 4}
    assert max(result["single block"]["distances"]) < 1e-4, result["single block"]["distances"]


def test_without_bf16_or_a_gpu_the_layers_are_those_of_torch():
    for x in (torch.zeros(2, 16, 4, 4), torch.zeros(2, 16, 4, 4, dtype=torch.bfloat16)):
        with torch.autocast("cpu", torch.bfloat16):
            assert not grouped.has_kernels(x)


def main():
    torch.set_num_threads(1)
    small_blocks()
    print(
        json.dumps(
            {
                "convolutions": {n: convolution(*case) for n, case in CONVOLUTIONS.items()},
                "norms": {n: norm(*case) for n, case in NORMS.items()},
                "alone": alone(),
                "block": block(2),
                "single block": block(1),
            }
        )
    )


def small_blocks():
    """So that even small pictures come in pieces, the last of which is not full."""
    from intarsia.training.engines.cuda import grouped_convolution as convolutions
    from intarsia.training.engines.cuda import grouped_norm as norms

    blocks = {size: convolutions.Blocks(16, 4, 1) for size in (16, 32, 64, 128)}
    convolutions.READ_BY_ROWS = convolutions.READ_BY_TAPS = convolutions.WEIGHTS = blocks
    convolutions.ADDED = (2, 32)
    convolutions.TILES = {16: 1, 32: 2, 64: 2, 128: 2}
    norms.PARTS, norms.SPAN, norms.PIXELS, norms.FINISHED = 3, 8, 8, 2


def convolution(modules, channels, outputs, side, stride, padding, *sizes, device="cpu"):
    """How far outputs, the gradient of x and that of the weights are from torch's in float32."""
    from intarsia.training.engines.cuda.grouped_convolution import convolve

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x, weight = drawn_layer(modules, channels, outputs, side, *sizes, device=device, dtype=dtype)
    ours = convolve(x, weight, stride, padding, dtype)
    x_64, weight_64 = x.detach().double().requires_grad_(), weight.detach().to(dtype).double()
    weight_64.requires_grad_()
    oracle = F.conv2d(x_64, weight_64.flatten(0, 1), None, stride, padding, 1, modules)
    towards = torch.randn(oracle.shape, device=device).to(dtype)
    mine = torch.autograd.grad(ours, (x, weight), towards)
    theirs = torch.autograd.grad(oracle, (x_64, weight_64), towards.double())
    return far((ours, *mine), (oracle, *theirs))


def drawn_layer(modules, channels, outputs, side, samples, height, width, device, dtype):
    torch.manual_seed(0)
    x = torch.randn(samples, modules * channels, height, width, device=device, dtype=dtype)
    weight = torch.randn(modules, outputs, channels, side, side, device=device)
    weight = grouped.channels_last(weight / (channels * side**2) ** 0.5)
    x = x.contiguous(memory_format=torch.channels_last)
    return x.requires_grad_(), weight.requires_grad_()


def norm(channels, relu, added, sizes=(3, 5, 3), device="cpu"):
    """How far outputs, gradients and running statistics are from torch's."""
    from intarsia.training.engines.cuda.grouped_norm import normalise

    torch.manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    offset = 20.0 if device == "cpu" else 0.5
    shape = (sizes[0], channels, *sizes[1:])
    x = (offset + torch.randn(shape, device=device)).to(dtype)
    weight, bias = (1 + torch.rand(2, channels, device=device)).unbind()
    leaves = [x, weight, bias] + [torch.randn(shape, device=device).to(dtype)] * added
    towards = torch.randn(shape, device=device).to(dtype)
    sides = []
    for double in (False, True):
        mine = [t.double() if double else t.clone() for t in leaves]
        mine = [t.requires_grad_() for t in mine]
        running = (torch.zeros(channels, device=device), torch.ones(channels, device=device))
        residual = mine[3] if added else None
        if double:
            running = tuple(t.double() for t in running)
            made = F.batch_norm(mine[0], *running, mine[1], mine[2], True, 0.2, 1e-3)
            made = made if residual is None else made + residual
            made = F.relu(made) if relu else made
        else:
            made = normalise(*mine[:3], running, 0.2, 1e-3, relu, residual)
        grads = torch.autograd.grad(made, mine, towards.to(made.dtype))
        sides.append((made, *grads, *running))
    return far(*sides)


def alone(device="cpu", samples=2):
    """Whether each of three modules has outputs and gradients of the same bits by itself."""
    from intarsia.training.engines.cuda.grouped_convolution import convolve
    from intarsia.training.engines.cuda.grouped_norm import normalise

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x, weight = drawn_layer(3, 16, 16, 3, samples, 5, 4, device=device, dtype=dtype)
    scale, bias = torch.rand(2, 48, device=device).unbind()

    def made(x, weight, scale, bias):
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        outputs = convolve(x, weight, 1, 1, dtype)
        outputs = normalise(outputs, scale, bias, None, 0.1, 1e-5, True)
        return outputs, *torch.autograd.grad(outputs.square().sum(), (x, weight))

    whole = made(x, weight, scale, bias)
    same = []
    for k in range(3):
        own = slice(16 * k, 16 * k + 16)
        single = made(x[:, own], weight[k : k + 1], scale[own], bias[own])
        same.append(torch.equal(single[0], whole[0][:, own]))
        same.append(
            torch.equal(single[1], whole[1][:, own]) and torch.equal(single[2][0], whole[2][k])
        )
    return same


class Pair(nn.Module):
    """A block whose shortcut is a convolution, behind a layer that reads the samples."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.block, self.fc = ResidualBlock(8, 16, 2), nn.Linear(16, 3)

    def forward(self, x):
        return self.fc(self.block(self.norm(self.conv(x))).mean((2, 3)))


def block(modules):
    """Networks side by side, or one by itself, by the kernels and by torch's layers.

    How far they are apart, and how often each kernel runs.
    """
    from intarsia.training.engines.cuda import grouped_convolution as convolutions
    from intarsia.training.engines.cuda import grouped_norm as norms

    calls = {"convolve": 0, "normalise": 0}

    def counted(name, function, *arguments):
        calls[name] += 1
        return function(*arguments)

    in_float = partial(convolutions.convolve, dtype=torch.float32)
    torch.manual_seed(0)
    networks = [Pair() for _ in range(modules)]
    x = torch.randn(5, 8, 6, 6)
    sides = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolutions, "convolve", partial(counted, "convolve", in_float))
        patch.setattr(norms, "normalise", partial(counted, "normalise", norms.normalise))
        for on in (True, False):
            patch.setattr(grouped, "has_kernels", lambda x, on=on: on)
            states = [network.state_dict() for network in networks]
            values = {n: torch.stack([s[n] for s in states]) for n in states[0]}
            names = [n for n, _ in networks[0].named_parameters()]
            whole = grouped.grouped(networks[0], modules, 8).train()
            if modules == 1:
                values = {n: t[0] for n, t in values.items()}
                whole = grouped.with_fused_norms(networks[0]).train() if on else networks[0].train()
            leaves = [values[n].requires_grad_() for n in names]
            made = functional_call(whole, values, (x,))
            grads = torch.autograd.grad(made.square().sum(), leaves)
            statistics = [values[n] for n in values if n not in names]
            sides.append((made, *grads, *statistics))
    return {"calls": calls, "distances": far(*sides)}


def far(ours, oracle):
    pairs = zip(ours, oracle, strict=True)
    return [
        float((a.detach().double() - b.detach().double()).norm() / b.detach().double().norm())
        for a, b in pairs
    ]


@on_gpu
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_in_bf16_on_a_gpu(case):
    """Outputs are rounded once, to 8 bits; the gradient of the weights is not."""
    *products, for_weights = convolution(*CONVOLUTIONS[case], device="cuda")
    assert max(products) < 4e-3
    assert for_weights < 1e-4


@on_gpu
@pytest.mark.parametrize("channels", [16, 32, 64])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_large_convolution_on_a_gpu_repeats_to_the_bit(channels, stride):
    from intarsia.training.engines.cuda.grouped_convolution import convolve

    layer = (3, channels, channels * stride if channels < 64 else 64, 3)
    assert max(convolution(*layer, stride, 1, 40, 16, 16, device="cuda")) < 4e-3
    x, weight = drawn_layer(*layer, 40, 16, 16, device="cuda", dtype=torch.bfloat16)
    runs = []
    for _ in range(2):
        made = convolve(x, weight, stride, 1)
        runs.append((made, *torch.autograd.grad(made.float().square().sum(), (x, weight))))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@on_gpu
def test_a_module_has_the_same_bits_in_any_bank_on_a_gpu():
    assert alone("cuda", 300) == [True] * 6


@on_gpu
@pytest.mark.parametrize("sizes", [(3, 5, 3), (64, 32, 32)])
@pytest.mark.parametrize("case", NORMS)
def test_a_normalisation_in_bf16_on_a_gpu(case, sizes):
    """A ReLU that rounding flips moves a gradient near 0 only."""
    assert max(norm(*NORMS[case], sizes=sizes, device="cuda")) < 2e-2


@on_gpu
@pytest.mark.parametrize("engine", ["grouped", "streams"])
def test_a_bank_on_a_gpu_trains_by_the_kernels_as_it_does_without(monkeypatch, engine):
    """As near as two ways of rounding to bf16 come in two epochs, and every time to the bit."""
    from intarsia.training.engines.cuda import grouped_norm

    calls = []
    original = grouped_norm.normalise
    monkeypatch.setattr(
        grouped_norm, "normalise", lambda *given: calls.append(1) or original(*given)
    )

    def trained(engine, precision="bf16"):
        return ia.train(
            "digits", model="resnet18(width=8)", engine=engine, precision=precision, epochs=2,
            preset="paper", sparsity=0.0, rounds=0, partition=[["0"], ["1"], ["2"]],
            device="cuda", progress=False, learning_rate=3e-3, temperature=1.0,
        )  # fmt: skip

    ours, again = trained(engine), trained(engine)
    assert calls
    assert [m.digest for m in ours] == [m.digest for m in again]
    plain, full = trained("plain"), trained("plain", "float32")
    rounding = max(apart(a, b) for a, b in zip(plain, full, strict=True))
    assert max(apart(a, b) for a, b in zip(ours, plain, strict=True)) < 2 * rounding + 1e-3
    calls.clear()
    monkeypatch.setattr(grouped, "KERNELS", False)
    trained(engine)
    assert not calls


def apart(ours, oracle):
    flat = [torch.cat([t.double().flatten() for t in m.state.values()]) for m in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


if __name__ == "__main__":
    main()
