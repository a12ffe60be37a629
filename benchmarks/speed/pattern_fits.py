"""Time fits of pattern networks: all in one stack against one after another, in one run.

    python benchmarks/speed/pattern_fits.py --device cuda
    python benchmarks/speed/pattern_fits.py --device cpu --networks 16 --alone 4 --steps 100 \\
        --sizes 16 32 64

Networks of the skull's layout (12 layers of 22 units) draw the embedded totem, full batch, Adam.
Every way does whole fits of so many steps, losses at the end included, after a short one that is
not timed. Ways:
  stacked           `sweetspot.fit` of all networks, on a CPU in parts that stay in its cache
  alone             `sweetspot.fit` of one network after another
  plain             what one writes first: autograd and torch.optim.Adam, one network after another
and on a GPU each of ours with its step as a CUDA graph and without ("eager"). Of the ways that go
one after another `--alone` networks are fitted, and the time of all is as many times that of one.
The ratio of a way is its time for all networks over that of the best stacked way. On a CPU times
are those of the processor, with one thread. Results go to docs/results/pattern_fits_DEVICE.json.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, made_by, save
from intarsia.sweetspot import PatternLayout, fit, initial_bank, load_network
from intarsia.sweetspot.networks import DEFAULT_BLOCKS, coordinates, forward
from intarsia.sweetspot.pictures import rgb

TARGET, DEPTH, LEARNING_RATE = "totem", 12, 3e-3
WARM_UP = 10  # steps of the fit that is not timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", type=int, default=256)
    parser.add_argument("--alone", type=int, default=8, help="fitted one after another")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64], help="pixels along an edge")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    rows = [row for size in options.sizes for row in measure(options, size)]
    words = [f"--device {options.device} --networks {options.networks} --alone {options.alone}"]
    words += [f"--steps {options.steps} --sizes {' '.join(map(str, options.sizes))}"]
    machine = "CPU, one thread" if options.device == "cpu" else None
    result = made_by(__file__, *words, machine=machine) | {
        "networks": options.networks,
        "alone": options.alone,
        "steps": options.steps,
        "depth": DEPTH,
        "clock": "processor" if options.device == "cpu" else "wall",
        "rows": rows,
    }
    save(options.out, f"pattern_fits_{options.device.partition(':')[0]}", result)


def measure(options: argparse.Namespace, size: int) -> list[dict[str, Any]]:
    """A row per way: seconds of all networks, per network and step, and over the best stack."""
    timed = {}
    for way, (function, networks) in ways(options, size).items():
        function(range(networks), WARM_UP)
        losses, seconds = clocked(
            lambda f=function, n=networks: f(range(n), options.steps), options
        )
        timed[way] = (seconds * options.networks / networks, networks, losses)
        print(size, way, f"{timed[way][0]:.2f} s for {options.networks} networks", flush=True)
    best = min(seconds for way, (seconds, *_) in timed.items() if way.startswith("stacked"))
    return [
        {
            "size": size,
            "way": way,
            "networks_fitted": networks,
            "seconds_of_all": round(seconds, 3),
            "ms_per_network_step": round(1e3 * seconds / options.networks / options.steps, 5),
            "ratio": round(seconds / best, 2),
            "median_loss": round(sorted(losses)[len(losses) // 2], 6),
        }
        for way, (seconds, networks, losses) in timed.items()
    ]


Way = Callable[[range, int], list[float]]


def ways(options: argparse.Namespace, size: int) -> dict[str, tuple[Way, int]]:
    """A function of seeds and steps that gives losses, and how many networks it is timed with."""
    is_gpu = options.device != "cpu"
    result: dict[str, tuple[Way, int]] = {}
    for suffix, graph in ((" graph", True), (" eager", False)) if is_gpu else (("", None),):

        def stacked(seeds: range, steps: int, graph: bool | None = graph) -> list[float]:
            return ours(seeds, steps, size, options.device, graph)

        def alone(seeds: range, steps: int, graph: bool | None = graph) -> list[float]:
            return [ours(range(s, s + 1), steps, size, options.device, graph)[0] for s in seeds]

        result[f"stacked{suffix}"] = (stacked, options.networks)
        result[f"alone{suffix}"] = (alone, options.alone)
    result["plain"] = (
        lambda seeds, steps: [plain(s, steps, size, options.device) for s in seeds],
        options.alone,
    )
    return result


def ours(seeds: range, steps: int, size: int, device: str, graph: bool | None) -> list[float]:
    """Losses of a fit of these seeds."""
    bank = fit(
        TARGET, depth=DEPTH, blocks=DEFAULT_BLOCKS, seeds=list(seeds), steps=steps,
        size=size, learning_rate=LEARNING_RATE, device=device, graph=graph,
        progress=False,
    )  # fmt: skip
    assert bank.losses is not None
    return list(bank.losses)


def plain(seed: int, steps: int, size: int, device: str) -> float:
    """The loss of one network, by autograd and torch's Adam."""
    layout = PatternLayout(DEFAULT_BLOCKS, DEPTH)
    weights = [w[0].to(device).requires_grad_() for w in initial_bank(layout, [seed]).weights]
    inputs = coordinates(size, device)
    target = load_network(TARGET).image(size).reshape(-1, 3).T.contiguous().to(device)
    optimiser = torch.optim.Adam(weights, lr=LEARNING_RATE, fused=True)
    for _ in range(steps):
        loss = (rgb(forward(layout, weights, inputs)[0]) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        gradients = [w.grad for w in weights if w.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_div_(gradients, norm)
        optimiser.step()
    with torch.no_grad():
        return float((rgb(forward(layout, weights, inputs)[0]) - target).square().mean())


def clocked(
    function: Callable[[], list[float]], options: argparse.Namespace
) -> tuple[list[float], float]:
    """What it gives, and seconds: of the processor on a CPU, of the wall on a GPU."""
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    if options.device != "cpu":
        torch.cuda.synchronize()
    began = clock()
    result = function()
    if options.device != "cpu":
        torch.cuda.synchronize()
    return result, clock() - began


if __name__ == "__main__":
    main()
