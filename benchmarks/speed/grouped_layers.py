"""Time the layers of ten ResNet-18 side by side, cuDNN's grouped convolution against our kernels.

    python benchmarks/speed/grouped_layers.py
    python benchmarks/speed/grouped_layers.py --blocks rows.16=128,4,3 weights.64=32,8,2 tiles.64=16
    python benchmarks/speed/grouped_layers.py --widths 16 --sweep

On a GPU, in bf16, channels last. Every number is milliseconds of one replay of a CUDA graph. Rows
of the table: each distinct convolution with how often it occurs, its forward, the gradient of its
inputs and that of its weights; normalisation with ReLU, and with a residual too, both ways at once;
and a whole step, forward and backward, of the network. `floor` is the time to read and write the
pictures of a pass once (of a normalisation, in its 8 or 11 passes) at the bandwidth of a copy that
is measured in the same run, `off` how far our numbers are from those of float32, as a fraction of
their norm; a first call compiles. `--blocks` sets positions of a tile, warps and stages
of a kernel (rows, taps, weights) for so many channels, `tiles` how many tiles a part of the sum of
weights has, `programs` how many fill the device, `pixels` those of a tile of a normalisation;
`--sweep` tries several instead. Modules of more channels than `--largest` are left to cuDNN, and
not listed.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

import intarsia as ia
from benchmarks.speed.convolutions import captured
from benchmarks.speed.training_cuda import copy_bandwidth
from intarsia.training.engines import grouped
from intarsia.training.engines.cuda import grouped_convolution as kernels
from intarsia.training.engines.cuda import grouped_norm as norms

SHAPE, CLASSES = (3, 32, 32), 10
CHECKED = 64  # samples of which numbers are compared
TABLES = {
    "rows": kernels.READ_BY_ROWS,
    "taps": kernels.READ_BY_TAPS,
    "weights": kernels.WEIGHTS,
}
CANDIDATES = {
    "rows": {
        16: ["64,2,3", "64,2,2", "64,2,1", "64,4,3", "64,4,1", "128,4,3", "128,4,1", "32,1,3"],
        32: ["64,4,2", "64,4,3", "64,4,1", "32,2,3", "32,2,1", "128,8,2"],
        64: ["64,4,1", "64,4,2", "128,8,2", "32,4,2"],
    },
    "taps": {
        16: ["64,4,3", "128,4,3", "64,2,3"],
        32: ["64,4,3", "128,4,3", "64,4,4"],
        64: ["64,4,3", "128,4,3", "128,8,3", "64,4,4"],
        128: ["128,8,3", "64,4,3", "64,8,3", "128,8,4"],
    },
    "weights": {
        16: ["64,4,2", "64,4,3", "64,4,1", "128,4,2", "128,4,1", "32,4,3"],
        32: ["64,8,2", "64,8,1", "32,8,2", "32,8,3", "64,8,3"],
        64: ["64,8,2", "32,8,2", "32,8,3", "64,8,3"],
        128: ["64,8,3", "32,8,3", "64,8,2"],
    },
}


class Layer(NamedTuple):
    """A convolution of one module, and the size of what it reads."""

    channels: int
    outputs: int
    side: int
    stride: int
    size: int

    @property
    def padding(self) -> int:
        return self.side // 2

    def __str__(self) -> str:
        kernel = f"{self.side}x{self.side}/{self.stride}"
        return f"{self.channels}->{self.outputs} {kernel} at {self.size}x{self.size}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", nargs="+", type=int, default=[16, 32])
    parser.add_argument("--modules", type=int, default=10)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--blocks", nargs="+", default=[], metavar="KERNEL.CHANNELS=NUMBERS")
    parser.add_argument("--sweep", action="store_true", help="try block sizes of 3 x 3")
    parser.add_argument("--largest", type=int, default=kernels.LARGEST, help="channels by kernels")
    parser.add_argument("--by-rows", type=int, default=kernels.BY_ROWS, help="channels by rows")
    options = parser.parse_args()
    for text in options.blocks:
        set_blocks(text)
    kernels.LARGEST, kernels.BY_ROWS = options.largest, options.by_rows
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copies at {bandwidth / 1e12:.2f} TB/s")
    for width in options.widths:
        layers = layers_of(width)
        for layer in layers:
            if not kernels.fits(*layer[:2], (layer.side,) * 2, (layer.stride,) * 2):
                continue
            if options.sweep:
                sweep(layer, options)
            else:
                convolution(layer, layers[layer], options, bandwidth)
        if not options.sweep:
            for outputs, size in sorted({(n.outputs, n.size // n.stride) for n in layers}):
                normalisation(outputs, size, options, bandwidth)
            whole_step(width, options)


def set_blocks(text: str) -> None:
    """Read `rows.16=128,4,3`, `tiles.64=8`, `programs=4096` or `pixels=64`."""
    name, _, value = text.partition("=")
    table, _, channels = name.partition(".")
    if table == "pixels":
        norms.PIXELS = int(value)
    elif table == "programs":
        kernels.PROGRAMS = int(value)
    elif table == "tiles":
        kernels.TILES[int(channels)] = int(value)
    else:
        positions, warps, stages = (int(n) for n in value.split(","))
        TABLES[table][int(channels)] = kernels.Blocks(positions, warps, stages)


def layers_of(width: int) -> Counter[Layer]:
    """The convolutions of a ResNet-18, and how often each occurs."""
    network = ia.initialise(f"resnet18({width})", SHAPE, CLASSES, 0)
    layers: Counter[Layer] = Counter()

    def seen(layer: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        numbers = (layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.stride[0])
        layers[Layer(*numbers, given[0].shape[-1])] += 1

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(seen)
    network(torch.zeros(2, *SHAPE))
    return layers


def convolution(layer: Layer, times: int, options: argparse.Namespace, bandwidth: float) -> None:
    x, weight, grad = drawn(layer, options.modules, options.batch)
    sizes = [2 * t.numel() for t in (x, grad)]
    ours, theirs = our_passes(layer, x, weight, grad), cudnn_passes(layer, x, weight, grad)
    first = {name: seconds(step) for name, step in ours.items()}
    off = distances(layer, options.modules)
    for name in ours:
        row(
            f"{times} x {layer}, {name}",
            milliseconds(theirs[name], options.repetitions),
            milliseconds(ours[name], options.repetitions),
            sum(sizes) / bandwidth * 1e3,
            f"off {off[name]:.1e}, first call {first[name]:.2f} s",
        )


def drawn(layer: Layer, modules: int, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, weights in bf16 and a gradient of the outputs."""
    torch.manual_seed(0)
    size = layer.size // layer.stride
    x = torch.randn(batch, modules * layer.channels, layer.size, layer.size, device="cuda")
    grad = torch.randn(batch, modules * layer.outputs, size, size, device="cuda")
    shape = (modules, layer.outputs, layer.channels, layer.side, layer.side)
    weight = grouped.channels_last(torch.randn(shape, device="cuda") / layer.channels**0.5)
    x, grad = (t.bfloat16().contiguous(memory_format=torch.channels_last) for t in (x, grad))
    return x, weight.bfloat16(), grad


def our_passes(layer: Layer, x: Tensor, weight: Tensor, grad: Tensor) -> dict[str, Any]:
    how = (layer.stride, layer.padding)
    size, made = (x.shape[2], x.shape[3]), (grad.shape[2], grad.shape[3])
    return {
        "forward": lambda: kernels._products(x, weight, *how, made, back=False),
        "inputs": lambda: kernels._products(grad, weight, *how, size, back=True),
        "weights": lambda: kernels._weight_gradient(x, grad, weight, *how),
    }


def cudnn_passes(layer: Layer, x: Tensor, weight: Tensor, grad: Tensor) -> dict[str, Any]:
    flat, modules = weight.flatten(0, 1), len(weight)
    how = ([layer.stride] * 2, [layer.padding] * 2, [1, 1])

    def back(of: int) -> Tensor:
        wanted = [k == of for k in range(3)]
        made: Tensor = torch.ops.aten.convolution_backward(
            grad, x, flat, None, *how, False, [0, 0], modules, wanted
        )[of]
        return made

    return {
        "forward": lambda: F.conv2d(x, flat, None, *how, modules),
        "inputs": lambda: back(0),
        "weights": lambda: back(1).unflatten(0, (modules, -1)),
    }


def distances(layer: Layer, modules: int) -> dict[str, float]:
    """How far our passes are from those of float32, for a few samples."""
    tensors = drawn(layer, modules, CHECKED)
    ours = our_passes(layer, *tensors)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        oracle = cudnn_passes(layer, *(t.float() for t in tensors))
        return {name: far(ours[name](), oracle[name]()) for name in ours}


def far(ours: Tensor, oracle: Tensor) -> float:
    return float((ours.float() - oracle).norm() / oracle.norm())


def normalisation(outputs: int, size: int, options: argparse.Namespace, bandwidth: float) -> None:
    """Forward and backward of BatchNorm and ReLU, with and without a residual between them."""
    torch.manual_seed(0)
    channels = options.modules * outputs
    x, residual, grad = (
        torch.randn(options.batch, channels, size, size, device="cuda")
        .bfloat16()
        .contiguous(memory_format=torch.channels_last)
        .requires_grad_(k < 2)
        for k in range(3)
    )
    weight, bias = (torch.rand(channels, device="cuda").requires_grad_() for _ in range(2))
    running = torch.zeros(channels, device="cuda"), torch.ones(channels, device="cuda")

    def theirs(added: bool) -> list[Tensor]:
        made = F.batch_norm(x, *running, weight, bias, True, 0.1, 1e-5)
        return both(F.relu(made + residual if added else made), added)

    def ours(added: bool) -> list[Tensor]:
        given = residual if added else None
        return both(norms.normalise(x, weight, bias, running, 0.1, 1e-5, True, given), added)

    def both(made: Tensor, added: bool) -> list[Tensor]:
        leaves = (x, weight, bias, residual) if added else (x, weight, bias)
        return [made.detach(), *torch.autograd.grad(made, leaves, grad)]

    for added in (False, True):
        # of x, residual, outputs and gradients, by two kernels forward and two back
        passes = 11 if added else 8
        off = max(far(a, b.float()) for a, b in zip(ours(added), theirs(added), strict=True))
        row(
            f"norm{' + residual' * added} + relu, {outputs} at {size}x{size}",
            milliseconds(lambda added=added: theirs(added), options.repetitions),
            milliseconds(lambda added=added: ours(added), options.repetitions),
            passes * 2 * x.numel() / bandwidth * 1e3,
            f"off {off:.1e} from torch's in bf16",
        )


def whole_step(width: int, options: argparse.Namespace) -> None:
    """Forward and backward of all networks as one, without the optimiser."""
    one = ia.initialise(f"resnet18({width})", SHAPE, CLASSES, 0).cuda().train()
    network = grouped.grouped(one, options.modules, SHAPE[0]).train()
    state = {n: torch.stack([t] * options.modules) for n, t in one.state_dict().items()}
    values = {n: grouped.channels_last(t) for n, t in state.items()}
    leaves = [values[n].requires_grad_() for n, _ in one.named_parameters()]
    x = torch.randn(options.batch, *SHAPE, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last)

    def step() -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = functional_call(network, values, (x,))
        return list(torch.autograd.grad(logits.float().logsumexp(1).sum(), leaves))

    took = []
    for on in (False, True):
        with kernels_on(on):
            took.append(milliseconds(step, options.repetitions))
    row(f"whole step of {options.modules} resnet18({width})", *took, float("nan"), "")


@contextmanager
def kernels_on(on: bool) -> Iterator[None]:
    before, grouped.KERNELS = grouped.KERNELS, on
    try:
        yield
    finally:
        grouped.KERNELS = before


def sweep(layer: Layer, options: argparse.Namespace) -> None:
    """Candidates for the block sizes of one layer, fastest first."""
    if layer.side == 1:
        return
    passes = our_passes(layer, *drawn(layer, options.modules, options.batch))
    channels = max(layer.channels, layer.outputs)
    tables = [("taps", ["forward", "inputs"]), ("weights", ["weights"])]
    if layer.stride == 1 and channels in kernels.READ_BY_ROWS:
        tables.insert(0, ("rows", ["forward", "inputs"]))
    for table, names in tables:
        kernels.BY_ROWS = 0 if table == "taps" else options.by_rows
        for name in names:
            times = {
                text: took
                for text in CANDIDATES[table][channels]
                if (took := tried(table, channels, text, passes[name], options)) is not None
            }
            ranked = sorted(times, key=lambda text: times[text])
            listed = "  ".join(f"{text}: {times[text]:.3f}" for text in ranked)
            print(f"{layer}, {name}, {table}.{channels}: {listed}", flush=True)


def tried(
    table: str, channels: int, text: str, step: Callable[[], Any], options: argparse.Namespace
) -> float | None:
    """Milliseconds of a pass with other blocks; None where the device has no room for them."""
    before = TABLES[table][channels]
    set_blocks(f"{table}.{channels}={text}")
    try:
        return milliseconds(step, options.repetitions)
    except Exception as error:
        print(f"{table}.{channels}={text}: {type(error).__name__}: {error}"[:100])
        return None
    finally:
        TABLES[table][channels] = before


def seconds(step: Callable[[], Any]) -> float:
    """Of one call, in which a kernel may be compiled."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def milliseconds(step: Callable[[], Any], repetitions: int) -> float:
    """Of one replay of a step as a graph, on average."""
    replay = captured(step)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    replay()
    begin.record()
    for _ in range(repetitions):
        replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repetitions


def row(name: str, theirs: float, ours: float, floor: float, note: str) -> None:
    print(
        f"{name:44s} torch {theirs:7.3f}  ours {ours:7.3f}  {theirs / ours:5.2f} x"
        f"  floor {floor:6.3f}  {note}",
        flush=True,
    )


if __name__ == "__main__":
    main()
