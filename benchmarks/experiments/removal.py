"""What does it cost to take a class out of a composition, and what is left of it?

    python benchmarks/experiments/removal.py

Every class in turn is removed from ten modules of each seed: territories joined by a sum of
weights, sparse modules joined as an inlay. The banks are those of banks.py. Seconds are those that
the processor worked, on one thread, since a busy machine changes the others. What removal is
compared with is measured by unlearning.py.
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import intarsia as ia
from benchmarks.experiments.banks import FOLDER, bank_of
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.models.axes import hidden_axes
from intarsia.models.units import live_units, take_units
from intarsia.modules import logits_of
from intarsia.modules.classifier import uncertainty

Cell = dict[str, Any]
JOINED = {"territory": "sum", "sparse": "inlay"}
MACHINE = f"CPU, {platform.machine()}, {os.cpu_count()} cores, 1 thread"
REPEATS = 5  # removals timed for one cell
NEAR = 0.1  # from the ceiling: an entropy that counts as uniform
SUBSAMPLE = 500  # samples on which networks of equal weights are asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="shallow")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = ia.load_data(options.data)
    result: dict[str, Any] = {
        **made_by(
            __file__,
            *("--data", options.data, "--model", options.model, "--seeds", *options.seeds),
            machine=MACHINE,
        ),
        "data": options.data,
        "model": options.model,
        "entropy_ceiling": round(math.log(data.classes), 4),
        "near": NEAR,
        "rows": [],
    }
    for kind, how in JOINED.items():
        bank = bank_of(options.data, options.model, kind, options.seeds, options.banks)
        cells = [c for s in options.seeds for c in removals(bank.seed(s), how, data)]
        result["rows"].append({"method": f"{kind}, {how}"} | summary(cells))
        print(json.dumps(result["rows"][-1]), flush=True)
    save(options.out, "removal", result)


def removals(parts: ia.Bank, how: str, data: ia.Data) -> list[Cell]:
    """Each class of one seed removed in turn."""
    merged = ia.compose(parts, how)
    before = logits_of(merged, data.test.x)
    own = {m.name: logits_of(m.to_module(), data.test.x) for m in parts}
    blocks = blocks_of(merged)
    cells = []
    for gone in merged.parts:
        wall, seconds = zip(
            *[timed(lambda g=gone: merged - g)[1] for _ in range(REPEATS)], strict=True
        )
        less = merged - gone
        rest = [part for part in merged.parts if part is not gone]
        after = logits_of(less, data.test.x)
        left = blocks_of(less)
        index = data.catalogue.index(gone.rewarded[0])
        mine = data.test.y == index
        least = torch.stack([entropy(own[p.name][mine], p.temperature) for p in rest]).amin(0)
        uniform = least >= math.log(data.classes) - NEAR
        spread_out = entropy(after[mine], less.temperature)
        off = (before.double() - after.double() - own[gone.name].double()).abs().max()
        cells.append(
            {
                "class": gone.rewarded[0],
                "seconds": statistics.median(seconds),
                "wall": statistics.median(wall),
                "own_equal": all(same_part(blocks[p.name], left[p.name], data) for p in rest),
                "like_composed": same(less, ia.compose(rest, how), data),
                "restored": same(less + gone, merged, data),
                "off": float(off),
                "logits": float(before.abs().max()),
                "uniform_share": float(uniform.double().mean()),
                "uniform_samples": int(uniform.sum()),
                "uniform_entropy_sum": float(spread_out[uniform].sum()),
                **left_of_class(less, before, after, index, data),
            }
        )
    return cells


def blocks_of(merged: ia.Composition) -> dict[str, ia.Module]:
    """The units of each part, cut out of the joined network as a module of their own."""
    assert merged.joined is not None
    wiring = merged.parts[0].architecture.wiring()
    at = dict.fromkeys(hidden_axes(wiring), 0)
    blocks = {}
    for part in merged.parts:
        live = live_units(wiring, part.state, part.mask)
        keep = {axis: live[axis].nonzero().flatten() for axis in at}
        if merged.joined.architecture.widths:  # side by side, in the order of the parts
            keep = {axis: torch.arange(len(units)) + at[axis] for axis, units in keep.items()}
        at = {axis: at[axis] + len(units) for axis, units in keep.items()}
        state = take_units(merged.joined.state, wiring, keep)
        blocks[part.name] = replace(ia.compact(part), state=state, mask={})
        assert all(torch.equal(state[k], v) for k, v in ia.compact(part).state.items())
    return blocks


def same_part(before: ia.Module, after: ia.Module, data: ia.Data) -> bool:
    """Whether weights and logits are equal to the last bit."""
    if any(not torch.equal(value, after.state[key]) for key, value in before.state.items()):
        return False
    logits = [logits_of(module.to_module(), data.test.x[:SUBSAMPLE]) for module in (before, after)]
    return torch.equal(*logits)


def same(one: ia.Composition, other: ia.Composition, data: ia.Data) -> bool:
    assert one.joined is not None
    assert other.joined is not None
    logits = [logits_of(merged, data.test.x[:SUBSAMPLE]) for merged in (one, other)]
    return one.joined.digest == other.joined.digest and torch.equal(*logits)


def left_of_class(model: Any, before: Tensor, after: Tensor, index: int, data: ia.Data) -> Cell:
    """What is left of the class and of the others, on test samples; answers are among all ten."""
    mine = data.test.y == index
    right = [logits.argmax(1) == data.test.y for logits in (before, after)]
    rest = [i for i in range(data.classes) if i != index]
    refuse = uncertainty(after, model.temperature) > ia.threshold(
        model, data.validation.select(rest)
    )
    return {
        "removed_before": fraction(right[0][mine]),
        "removed": fraction(right[1][mine]),
        "others_before": fraction(right[0][~mine]),
        "others": fraction(right[1][~mine]),
        "change": fraction(right[1][~mine]) - fraction(right[0][~mine]),
        "entropy": float(entropy(after[mine], model.temperature).mean()),
        "answered_as_removed": fraction(right[1][mine] & ~refuse[mine]),
        "refused": fraction(refuse[mine]),
        "answered": fraction(~refuse[~mine]),
    }


def fraction(result: Tensor) -> float:
    return float(result.double().mean())


def entropy(logits: Tensor, temperature: float) -> Tensor:
    return uncertainty(logits, temperature) * math.log(logits.shape[1])


def timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """What it gave, and its seconds: by the clock, and of processors in this process and others."""
    began, worked = time.perf_counter(), worked_seconds()
    result = call()
    return result, (time.perf_counter() - began, worked_seconds() - worked)


def worked_seconds() -> float:
    """Of this process and of those it started and that have ended."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def summary(cells: Sequence[Cell]) -> Cell:
    """Median times, mean and standard deviation of the rest, checks that hold for all."""
    result: Cell = {"n": len(cells), "classes": sorted({c["class"] for c in cells})}
    for key in ("seconds", "wall"):
        result[key] = {
            "median": round(statistics.median(c[key] for c in cells), 4),
            "least": round(min(c[key] for c in cells), 4),
            "most": round(max(c[key] for c in cells), 4),
        }
    for key in ("removed_before", "removed", "others_before", "others", "change", "entropy"):
        result[key] = spread([c[key] for c in cells])
    for key in ("answered_as_removed", "refused", "answered", "uniform_share", "steps"):
        if key in cells[0]:
            result[key] = spread([c[key] for c in cells])
    if "off" in cells[0]:
        for key in ("own_equal", "like_composed", "restored"):
            result[key] = sum(c[key] for c in cells)
        samples = sum(c["uniform_samples"] for c in cells)
        total = sum(c["uniform_entropy_sum"] for c in cells)
        result |= {
            "off": max(c["off"] for c in cells),
            "logits": max(c["logits"] for c in cells),
            "removed_most": max(c["removed"] for c in cells),
            "uniform_samples": samples,
            "uniform_entropy": round(total / samples, 5) if samples else None,
            "by_class": {name: by_class(cells, name) for name in result["classes"]},
        }
    return result


def by_class(cells: Sequence[Cell], name: str) -> Cell:
    mine = [cell for cell in cells if cell["class"] == name]
    keys = ("removed", "entropy", "uniform_share", "refused", "change")
    return {"n": len(mine)} | {key: spread([c[key] for c in mine]) for key in keys}


if __name__ == "__main__":
    main()
