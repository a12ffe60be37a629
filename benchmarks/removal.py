"""What does it cost to take a class out of the whole, and what is left of it?

    python benchmarks/removal.py

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from banks import FOLDER, bank_of
from forgetting import Cell, entropy, figures, summary, timed
from intarsia.models.axes import hidden_axes
from intarsia.models.units import live_units, take_units
from intarsia.modules import logits_of
from record import RESULTS, made_by, save

JOINED = {"territory": "sum", "sparse": "inlay"}
REPEATS = 5  # removals timed for one cell
NEAR = 0.1  # from the ceiling: an entropy that counts as uniform
FEW = 500  # samples on which networks of equal weights are asked


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
            command(options), machine=f"CPU, {platform.machine()}, {os.cpu_count()} cores, 1 thread"
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


def command(options: argparse.Namespace) -> str:
    words = ["python benchmarks/removal.py --data", options.data, "--model", options.model]
    return " ".join(map(str, [*words, "--seeds", *options.seeds]))


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
                **figures(less, before, after, index, data),
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
    logits = [logits_of(module.to_module(), data.test.x[:FEW]) for module in (before, after)]
    return torch.equal(*logits)


def same(one: ia.Composition, other: ia.Composition, data: ia.Data) -> bool:
    assert one.joined is not None
    assert other.joined is not None
    logits = [logits_of(merged, data.test.x[:FEW]) for merged in (one, other)]
    return one.joined.digest == other.joined.digest and torch.equal(*logits)


if __name__ == "__main__":
    main()
