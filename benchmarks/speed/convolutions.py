"""Time the training of convolutional modules on a GPU, engine by engine, all in one run.

    python benchmarks/speed/convolutions.py --models 'resnet18(16)' 'resnet18(64)'

Random pictures of CIFAR's size, batch 512, products in bf16, crops and flips on the device. Ways:
  eager      what an expert writes first: one network, bytes resident on the device, channels last,
             autocast, fused Adam, step by step
  graph      the same with its step as a CUDA graph
  ENGINE     `intarsia.train` with that engine, so many modules at once, validation included;
             grouped/torch and streams/torch are these without our own kernels
The second and later epochs are timed, the first call is given apart. The floor is the time of the
products alone at the rate of a large bf16 matrix product, measured in the same run. Results go to
docs/results/convolutions.json.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from benchmarks.speed.training_cuda import pictures
from intarsia.data import Data
from intarsia.data.augmentations import augmented, draw_numbers, read_augmentations
from intarsia.training import loop
from intarsia.training.engines import grouped

SHAPE, CLASSES = (3, 32, 32), 10
AUGMENT = "crop(4) + flip"
ENGINES = ("grouped", "streams", "compiled", "single")
SETTINGS: dict[str, Any] = {
    "preset": "paper", "precision": "bf16", "augment": AUGMENT, "sparsity": 0.0, "rounds": 0,
    "select": "last", "temperature": 1.0, "progress": False,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["resnet18(16)", "resnet18(64)"])
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    parser.add_argument("--modules", type=int, default=10)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=2, help="timed, after a first one")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = pictures(options.samples, SHAPE)
    rate = matrix_rate(options.device)
    rows = []
    for model in options.models:
        floor = flops_of(model) * steps(options) * options.batch / rate
        for way in ("eager", "graph", *options.engines):
            timed = by_engine if way in options.engines else by_hand
            row = timed(data, model, options, way) | {"floor": round(floor, 5)}
            print(json.dumps(row), flush=True)
            rows.append(row)
    words = ["--models", *(f"'{m}'" for m in options.models), "--engines", *options.engines]
    words += ["--modules", options.modules, "--samples", options.samples]
    result = made_by(__file__, *words, "--batch", options.batch) | {
        "modules": options.modules,
        "samples": options.samples,
        "batch": options.batch,
        "teraflops_of_a_matrix_product": round(rate / 1e12, 1),
        "rows": rows,
        "speeds": speeds_of(rows, steps(options) * options.batch, options.batch),
    }
    save(options.out, "convolutions", result)


def speeds_of(rows: list[dict[str, Any]], samples: int, batch: int) -> list[dict[str, Any]]:
    """The fastest bank of every model: samples a second of all its modules together."""
    banks: dict[str, dict[str, Any]] = {}
    for row in rows:
        seconds = row.get("seconds_per_module_epoch")
        if seconds is None or row["modules"] < 2:
            continue
        best = banks.get(row["model"])
        if best is None or seconds < best["seconds_per_module_epoch"]:
            banks[row["model"]] = row
    return [
        {
            "model": model,
            "shape": list(SHAPE),
            "outputs": CLASSES,
            "modules": row["modules"],
            "samples_per_second": round(samples / row["seconds_per_module_epoch"], 1),
            "engine": row["way"],
            "precision": SETTINGS["precision"],
            "batch": batch,
        }
        for model, row in banks.items()
    ]


def steps(options: argparse.Namespace) -> int:
    return max(1, options.samples // options.batch)


def by_hand(data: Data, model: str, options: argparse.Namespace, way: str) -> dict[str, Any]:
    """One network in a loop of its own, without validation."""
    graph = way == "graph"
    device, batch = options.device, options.batch
    network = ia.initialise(model, SHAPE, CLASSES, 0).to(device).train()
    network = network.to(memory_format=torch.channels_last)
    x, y = data.train.x.to(device), data.train.y.to(device)
    scaling, kinds = data.scaling.to(torch.device(device)), read_augmentations(AUGMENT)
    numbers = draw_numbers(kinds, len(y), 0).to(device)
    optimiser = torch.optim.Adam(
        network.parameters(), lr=1e-3, fused=True, capturable=graph and device == "cuda"
    )
    indices = torch.zeros(batch, dtype=torch.long, device=device)

    def step() -> None:
        images = augmented(scaling(x[indices]), kinds, numbers[indices])
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16, cache_enabled=not graph):
            logits = network(images)
        optimiser.zero_grad(set_to_none=False)
        cross_entropy(logits.float(), y[indices]).backward()
        optimiser.step()

    began = time.perf_counter()
    advance = captured(step) if graph and device == "cuda" else step
    seconds = []
    for _ in range(options.epochs + 1):
        wait(device)
        start = time.perf_counter()
        for rows in torch.randperm(len(y), device=device).split(batch)[: steps(options)]:
            indices.copy_(rows)
            advance()
        wait(device)
        seconds.append(time.perf_counter() - start)
    first = seconds[0] + (start - began - sum(seconds[:-1]))
    return _row(model, way, 1, min(seconds[1:]), first)


def by_engine(data: Data, model: str, options: argparse.Namespace, engine: str) -> dict[str, Any]:
    """A bank by `train`; a row that says why where the engine cannot train it."""
    timed: list[float] = []
    original = loop.train_epoch

    def watched(*arguments: Any) -> Any:
        wait(options.device)
        start = time.perf_counter()
        result = original(*arguments)
        wait(options.device)
        timed.append(time.perf_counter() - start)
        return result

    settings = SETTINGS | {"batch": options.batch, "epochs": options.epochs + 1}
    partition = [[name] for name in data.catalogue[: options.modules]]
    loop.train_epoch = watched
    name, _, layers = engine.partition("/")
    usual, grouped.KERNELS = grouped.KERNELS, layers != "torch"
    began = time.perf_counter()
    try:
        bank = ia.train(
            data, model=model, engine=name, device=options.device, partition=partition, **settings
        )
    except ia.errors.IntarsiaError as error:
        return {"model": model, "way": engine, "refused": str(error)}
    finally:
        loop.train_epoch, grouped.KERNELS = original, usual
    whole = time.perf_counter() - began
    modules = len(bank)
    chunks = len(timed) // (options.epochs + 1)
    later = [min(timed[c * (options.epochs + 1) + 1 :][: options.epochs]) for c in range(chunks)]
    first = whole - sum(timed) + timed[0]
    return _row(model, engine, modules, sum(later) / modules, first)


def _row(model: str, way: str, modules: int, seconds: float, first: float) -> dict[str, Any]:
    peak = torch.cuda.max_memory_allocated() // 2**20 if torch.cuda.is_available() else 0
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return {
        "model": model,
        "way": way,
        "modules": modules,
        "seconds_per_module_epoch": round(seconds, 5),
        "first_epoch_and_start_seconds": round(first, 2),
        "peak_MiB": peak,
    }


def captured(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def flops_of(model: str) -> float:
    """Floating-point operations of a sample, forward and back."""
    network: nn.Module = ia.initialise(model, SHAPE, CLASSES, 0)
    x: Tensor = torch.zeros(2, *SHAPE)
    with FlopCounterMode(display=False) as counter:
        network(x).sum().backward()
    return counter.get_total_flops() / 2


def matrix_rate(device: str, size: int = 8192) -> float:
    """Operations a second of a large product in bf16."""
    size = size if device == "cuda" else 256
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(10):
        wait(device)
        began = time.perf_counter()
        a @ a
        wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
