"""A plan on paper: a thousand one-class modules of ImageNet, in hours, bytes and cost.

    python benchmarks/experiments/imagenet_plan.py docs/results/SPEEDS.json

Nothing is trained. SPEEDS.json is a result of a speed measurement with a list `speeds`, each entry
with `model` (as a recipe names it), `shape` and `outputs` of what was measured, `modules` trained
at a time, by which `engine`, and `samples_per_second` of training: the samples that all these
modules together have seen in a second. Its other fields, such as `precision` and `batch`, are
carried along. The memory that such a run took is the `peak_MiB` of its entry in the list `rows`.

The time for larger pictures follows from multiplications: as many a second as were measured. What
else is assumed stands in `Assumptions`, can be set by options, and is written to the result.
"""

import argparse
import json
from dataclasses import asdict, dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.record import RESULTS, ROOT, made_by, save
from intarsia.models import build
from intarsia.modules.file import encode

COLOURS = 3
MIB = 2**20


@dataclass(frozen=True)
class Assumptions:
    """What is not measured."""

    images: int = 1_281_167  # training images of ILSVRC 2012
    classes: int = 1000  # and as many modules
    epochs: int = 16  # of each module, in all rounds together
    negatives: float = 9.0  # of other classes for each own image, in balanced batches
    sparsity: float = 0.9  # of the modules that are kept
    gpus: int = 8
    price: float = 3.0  # dollars for an hour of one GPU
    memory: float = 141e9  # bytes of one GPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("speeds", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 224])
    for field in fields(Assumptions):
        kind = type(field.default)
        parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = vars(parser.parse_args())
    given = Assumptions(**{field.name: options[field.name] for field in fields(Assumptions)})
    measured = json.loads(options["speeds"].read_text())
    place = options["speeds"].resolve()
    name = place.relative_to(ROOT) if place.is_relative_to(ROOT) else place.name
    about = made_by(__file__, name)
    del about["machine"]  # which only adds up
    result = {
        **about,
        "measured": {key: measured[key] for key in ("command", "date", "machine")},
        "assumptions": asdict(given),
        "networks": [
            network(speed, peak_of(speed, measured["rows"]), options["sizes"], given)
            for speed in measured["speeds"]
        ],
    }
    save(options["out"], "imagenet", result)


def peak_of(speed: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    """Bytes on the GPU of the run whose speed it is."""
    same = {"model": speed["model"], "way": speed["engine"], "modules": speed["modules"]}
    (row,) = (row for row in rows if same.items() <= row.items())
    return float(row["peak_MiB"] * MIB)


def network(
    speed: dict[str, Any], peak: float, sizes: list[int], given: Assumptions
) -> dict[str, Any]:
    """The plan for one network that was measured, and took so many bytes at its peak."""
    base, _ = cost(speed["model"], tuple(speed["shape"]), speed["outputs"])
    pixels = prod(speed["shape"][1:])
    rows = []
    for size in sizes:
        shape = (COLOURS, size, size)
        work, parameters = cost(speed["model"], shape, given.classes)
        rate = speed["samples_per_second"] * base / work
        memory = peak / speed["modules"] * size**2 / pixels
        rows.append(
            {
                "size": size,
                "parameters": parameters,
                "work_per_sample": work / base,  # in samples as they were measured
                "samples_per_second": rate,
                "joint_hours": hours(given, rate, 1, given.images),
                "plain": budget(given, rate, given.images),
                "balanced": budget(given, rate, own_images(given) * (1 + given.negatives)),
                "bytes": {**sizes_of(given, parameters, shape), "module_in_training": memory},
                "modules_at_a_time": int(given.memory // memory),
            }
        )
    return {"speed": speed, "rows": rows}


def cost(model: str, shape: tuple[int, ...], outputs: int) -> tuple[int, int]:
    """Multiplications and additions of one sample going forward, and learned parameters."""
    with torch.device("meta"):
        built = build(model, shape, outputs).eval()
        inputs = torch.zeros(1, *shape)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        built(inputs)
    return counter.get_total_flops(), sum(p.numel() for p in built.parameters())


def budget(given: Assumptions, rate: float, samples: float) -> dict[str, float]:
    """Hours of GPUs, days and dollars for all modules, each with so many samples in an epoch."""
    spent = hours(given, rate, given.classes, samples)
    return {
        "samples_per_epoch": samples,
        "gpu_hours": spent,
        "days": spent / given.gpus / 24,
        "dollars": spent * given.price,
    }


def hours(given: Assumptions, rate: float, modules: int, samples: float) -> float:
    return modules * given.epochs * samples / rate / 3600


def own_images(given: Assumptions) -> float:
    """Of a class, on average."""
    return given.images / given.classes


def sizes_of(given: Assumptions, parameters: int, shape: tuple[int, ...]) -> dict[str, float]:
    """Bytes of the pictures as uint8, and of files of all modules."""
    return {
        "pictures": given.images * prod(shape),
        "dense_files": 4 * parameters * given.classes,
        "sparse_files": sparse_bytes(1 - given.sparsity) * parameters * given.classes,
    }


def sparse_bytes(density: float, entries: int = 1_000_000) -> float:
    """Bytes of a file for each parameter, kept or not, where the kept ones lie at random."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(entries, generator=generator) < density
    _, stored = encode("weight", torch.ones(entries), mask)
    return sum(tensor.nbytes for tensor in stored.values()) / entries


if __name__ == "__main__":
    main()
