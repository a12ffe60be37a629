"""The GPU part of training.py: time against K, the memory floor, engine by engine.

Stacks are timed in a process that has trained before. Timed in processes of their own: the first
call of a new one, with nothing compiled; and the loops of expert.py, one module after another, for
two epochs a round, step by step and as a CUDA graph.
"""

import os
import tempfile
import time
from typing import Any

import torch

import intarsia as ia
from benchmarks.speed.expert import expert_on_device
from benchmarks.speed.training import apart
from intarsia.data import Data, Split

FIRST = 50  # modules of the first call


def on_cuda(data_name: str, epochs: int, stacks: list[int]) -> dict[str, Any]:
    first = apart(first_call, data_name, FIRST, epochs)
    ways = {
        name: apart(expert_on_device, data_name, "mlp", 2, "cuda", name == "graph")
        for name in ("expert", "graph")
    }
    data = ia.load_data(data_name)
    bandwidth = copy_bandwidth()
    run(data, 1, 1, "auto")  # compile and warm up
    rows = []
    for modules in stacks:
        row = run(data, modules, epochs, "auto")
        dense = run(data, modules, epochs, "auto", sparsity=0.0)
        numbers = 7 * 4 * dense["parameters"] * modules  # read once forward; 3 read, 3 written back
        steps = epochs * (len(data.train) // 64)
        floor = numbers * steps / bandwidth
        row["dense_round_seconds"] = dense["training_seconds"]
        row["floor_of_dense_round_seconds"] = round(floor, 3)
        row["share_of_floor"] = round(floor / dense["training_seconds"], 3)
        rows.append(row)
    return {
        "machine": torch.cuda.get_device_name(),
        "run": f"{data_name}, mlp(512), 3 rounds of {epochs} epochs, batch 64, sparsity 0.99",
        "copy_bandwidth_TB_per_s": round(bandwidth / 1e12, 2),
        "stacks": rows,
        "first_call": first,
        "ways": ways,
    }


def first_call(data_name: str, modules: int, epochs: int) -> dict[str, Any]:
    """Seconds of the first call of `train` in a new process: the device starts, kernels compile."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        data = ia.load_data(data_name)
        began = time.perf_counter()
        bank = train(data, modules, epochs, "auto")
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    return {"modules": len(bank), "engine": bank.report["engine"], "seconds": round(seconds, 2)}


def run(
    data: Data, modules: int, epochs: int, engine: str, model: str = "mlp", **settings: Any
) -> dict[str, Any]:
    """Train `modules` modules; times the call and the epochs."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    watched = Watched()
    started = time.perf_counter()
    with watched:
        bank = train(data, modules, epochs, engine, model, **settings)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return {
        "modules": len(bank),
        "engine": bank.report["engine"],
        "seconds": round(seconds, 2),
        "training_seconds": round(watched.seconds, 2),
        "seconds_of_rounds": [round(s, 2) for s in watched.rounds.values()],
        "seconds_per_module_epoch": round(seconds / len(bank) / watched.epochs, 5),
        "peak_MiB": torch.cuda.max_memory_allocated() // 2**20,
        "parameters": bank[0].parameters,
    }


def train(
    data: Data, modules: int, epochs: int, engine: str, model: str = "mlp", **settings: Any
) -> ia.Bank:
    """A bank of `modules` modules, classes of one seed after another."""
    classes, seeds = min(modules, data.classes), -(-modules // data.classes)
    return ia.train(
        data,
        preset="paper",
        model=model,
        epochs=epochs,
        engine=engine,
        device="cuda",
        partition=[[c] for c in data.catalogue[:classes]],
        seeds=list(range(seeds)),
        **settings,
    )


class Watched:
    """Adds up the time that engines spend in their epochs, and counts these."""

    def __enter__(self) -> "Watched":
        from intarsia.training import loop

        self.seconds, self.epochs, self.loop = 0.0, 0, loop
        self.rounds: dict[int, float] = {}
        self.original = loop.train_epoch

        def timed(*arguments: Any) -> Any:
            torch.cuda.synchronize()
            started = time.perf_counter()
            result = self.original(*arguments)
            torch.cuda.synchronize()
            spent, round_ = time.perf_counter() - started, arguments[2].round
            self.seconds += spent
            self.rounds[round_] = self.rounds.get(round_, 0.0) + spent
            self.epochs += 1
            return result

        loop.train_epoch = timed
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.train_epoch = self.original


def copy_bandwidth() -> float:
    """Bytes read and written per second by a large copy on the device."""
    source = torch.empty(2**28, device="cuda").normal_()
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return 2 * source.numel() * 4 / best


def engine_by_engine(data_name: str) -> dict[str, Any]:
    """Ten modules by every engine that can train them: what the automatic choice rests on."""
    data = ia.load_data(data_name)
    run(data, 1, 1, "auto")  # compile and warm up
    colour = pictures(5120, (3, 32, 32))
    cases = [
        (data, "mlp", ("mlp", "stack", "single")),
        (data, "lenet", ("stack", "single")),
        (colour, "resnet18(width=8)", ("stack", "single")),
        (colour, "resnet18(width=64)", ("stack", "single")),
        (colour, "vgg11(width=64)", ("stack", "single")),
    ]
    rows = []
    for samples, model, names in cases:
        for name in names:
            row = run(samples, 10, 2, name, model, sparsity=0.0)
            keys = ("engine", "training_seconds", "peak_MiB", "parameters")
            rows.append({"model": model} | {k: row[k] for k in keys})
    return {"machine": torch.cuda.get_device_name(), "engines": rows}


def pictures(samples: int, shape: tuple[int, ...]) -> Data:
    """Random pictures of ten classes, for timing alone."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        x = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
        return Split(x, torch.arange(count) % 10)

    names = tuple(str(c) for c in range(10))
    return Data.build("pictures", names, split(samples), split(640), split(640), "unit")
