"""What does an inlay of ten sparse modules cost against the dense network of the original shape?

    python benchmarks/speed/inlay.py --modules banks/shallow banks/deep

Every folder is a bank as Bank.save writes it. The inlay of its modules is compacted, written by
Module.save and run as `sparse` makes it; compared with it are the unpruned network of the modules'
own shape, the inlay run with dense layers, and the modules joined by "logits". Times are medians
over repetitions in which all of them take turns; a turn is one call to warm the caches and one that
is timed. Results go to docs/results/inlay.json.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.modules.sparse import sparse

BATCHES = (1, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=Path, nargs="+", required=True, help="folders of banks")
    parser.add_argument("--seed", type=int, help="which seed of a bank with several")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result = {
        **made_by(
            __file__,
            *words(options),
            machine=f"CPU, {platform.machine()}, {os.cpu_count()} cores",
        ),
        "rows": [row_of(folder, options) for folder in options.modules],
    }
    save(options.out, "inlay", result)


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given."""
    seed = [] if options.seed is None else ["--seed", options.seed]
    return [
        *("--modules", *(folder.name for folder in options.modules), *seed),
        *("--threads", *options.threads, "--repetitions", options.repetitions),
    ]


def row_of(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Bytes, nonzeros and times for one bank."""
    bank = ia.Bank.load(folder)
    bank = bank if options.seed is None else bank.seed(options.seed)
    merged, logits = ia.compose(bank, "inlay").compact(), ia.compose(bank, "logits")
    dense = unpruned(bank[0])
    ways = {
        "dense": dense.to_module(),
        "inlay": sparse(merged),
        "inlay, dense layers": merged.to_module(),
        "logits": logits,
    }
    row: dict[str, Any] = {
        "model": str(bank[0].architecture),
        "modules": len(bank),
        "density_of_modules": round(statistics.mean(m.density for m in bank), 5),
        "files": {"dense": measured(dense), "inlay": measured(merged)},
        "widths": dict(merged.architecture.widths),
        "off_the_logit_sum": largest_difference(ways, bank[0].architecture.shape),
        "latency": [
            latency(ways, bank[0].architecture.shape, threads, batch, options.repetitions)
            for threads in options.threads
            for batch in BATCHES
        ],
    }
    for key in ("bytes", "nonzero"):
        row[f"{key} dense/inlay"] = round(
            row["files"]["dense"][key] / row["files"]["inlay"][key], 2
        )
    print(json.dumps(row, indent=1), flush=True)
    return row


def unpruned(module: ia.Module) -> ia.Module:
    """A module of the same shape with all its weights, as an origin has them."""
    architecture = replace(module.architecture, widths={})
    assert architecture.model is not None
    network = ia.initialise(architecture.model, architecture.shape, architecture.outputs, seed=0)
    return replace(
        module, name="dense", state=network.state_dict(), mask={}, architecture=architecture
    )


def measured(module: ia.Module) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.safetensors"
        module.save(path)
        return {
            "bytes": path.stat().st_size,
            "nonzero": module.nonzero,
            "parameters": module.parameters,
        }


def inputs(shape: tuple[int, ...], batch: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=draw)


def largest_difference(ways: Mapping[str, torch.nn.Module], shape: tuple[int, ...]) -> float:
    """Between the inlay's logits and their sum, over the largest of them."""
    x = inputs(shape, 1000)
    with torch.inference_mode():
        inlay, logits = ways["inlay"](x), ways["logits"](x)
    return float((inlay - logits).abs().max() / logits.abs().max())


def latency(
    ways: Mapping[str, Callable[[Tensor], Tensor]],
    shape: tuple[int, ...],
    threads: int,
    batch: int,
    repetitions: int,
) -> dict[str, Any]:
    """Microseconds per call of every way; they take turns, so that a busy moment hits all."""
    torch.set_num_threads(threads)
    x = inputs(shape, batch)
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode():
        for _ in range(repetitions):
            for name, model in ways.items():
                model(x)
                started = time.perf_counter()
                model(x)
                times[name].append(1e6 * (time.perf_counter() - started))
    middle = {name: statistics.median(seen) for name, seen in times.items()}
    return {
        "threads": threads,
        "batch": batch,
        "repetitions": repetitions,
        "load": round(os.getloadavg()[0], 1),
        "median_us": {name: round(value, 1) for name, value in middle.items()},
        "fastest_us": {name: round(min(seen), 1) for name, seen in times.items()},
        "dense/inlay": round(middle["dense"] / middle["inlay"], 2),
    }


if __name__ == "__main__":
    main()
