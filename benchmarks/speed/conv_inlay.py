"""What does an inlay of convolutional modules cost, by the way it runs?

    python benchmarks/speed/conv_inlay.py                    # on the CPU
    python benchmarks/speed/conv_inlay.py --device cuda --precision bf16 --batches 1 512
    python benchmarks/speed/conv_inlay.py --retrain cifar10 --rows 2000 --epochs 2

The modules are networks of `--models` with weights as they begin, once whole, so that all have as
many channels, and once with a part of their channels pruned at random, so that none has as many as
another. Compared are the inlay as `compose` runs it, the same with every module's convolutions one
by one, its state as one block-diagonal network, the modules as networks of their own whose logits
are added, and one network of `--joint`, which may be as large as all of them. All of them take
turns; a turn is one call to warm up and one that is timed. With `--retrain` modules are trained on
rows of a data set, one is taken out of their inlay, and the time of that is compared with that of
training the others anew. Results go to docs/results/conv_inlay.json, or conv_inlay_cuda.json.
"""

import argparse
import contextlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.composition import Composition, MergeContext
from intarsia.composition.operators.inlay import inlay_blocks
from intarsia.composition.operators.inlay_network import BlockConvolution
from intarsia.data import Scaling, Split, subsample
from intarsia.models import initialise, wiring_of
from intarsia.models.axes import axis_sizes, hidden_axes
from intarsia.modules import Architecture, Module
from intarsia.pruning.territory import owned_mask

Row = dict[str, Any]
SHAPE = (3, 32, 32)
LEAST = 0.7  # of the channels of an axis that a ragged module keeps
JOINT, BLOCKS = "joint", "inlay"
# A block-diagonal network larger than this, in numbers, is not built.
LARGEST = 300_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["fastnet(20)", "resnet18(16)"])
    parser.add_argument("--joint", nargs="+", default=["fastnet(64)", "resnet18(50)"])
    parser.add_argument("--modules", type=int, default=10)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--retrain", help="a data set to train modules on")
    parser.add_argument("--rows", type=int, help="training rows taken of it, evenly spaced")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if len(options.models) != len(options.joint):
        parser.error("give a --joint network for each of --models")
    torch.set_num_threads(options.threads)
    on_cuda = torch.device(options.device).type == "cuda"
    machine = f"CPU, {platform.machine()}, {os.cpu_count()} cores, {options.threads} threads"
    result: Row = {
        **made_by(__file__, *words(options), machine=None if on_cuda else machine),
        "shape": list(SHAPE),
        "precision": options.precision,
        "rows": [
            row
            for model, joint in zip(options.models, options.joint, strict=True)
            for row in rows_of(model, joint, options)
        ],
    }
    if options.retrain:
        result["removal"] = [removal(model, options) for model in options.models]
    save(options.out, "conv_inlay_cuda" if on_cuda else "conv_inlay", result)


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given."""
    given = vars(options).items()
    return [
        word
        for key, value in given
        if key != "out" and value is not None
        for word in (f"--{key}", *(map(quoted, value) if isinstance(value, list) else [value]))
    ]


def quoted(word: object) -> str:
    return f"'{word}'" if "(" in str(word) else str(word)


def rows_of(model: str, joint: str, options: argparse.Namespace) -> list[Row]:
    """Sizes and times of a model's inlay, with modules of one size and of several."""
    rows = []
    for ragged in (False, True):
        parts = [part_of(k, model, options.modules, ragged) for k in range(options.modules)]
        merged, ways = ways_of(parts, joint)
        ways = {name: way.to(options.device).eval() for name, way in ways.items()}
        row: Row = {
            "model": model,
            "joint": joint,
            "modules": options.modules,
            "channels": "of several sizes" if ragged else "of one size",
            "grouped_layers": sum(layer.groups > 1 for layer in block_layers(merged)),
            "block_layers": len(block_layers(merged)),
            "numbers": {name: count(way) for name, way in ways.items()},
            "off_the_logit_sum": largest_difference(ways, options),
            "latency": [latency(ways, batch, options) for batch in options.batches],
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def part_of(number: int, model: str, modules: int, ragged: bool) -> Module:
    """A module with weights as they begin; if ragged, without some of its channels."""
    catalogue = tuple(str(k) for k in range(modules))
    network = initialise(model, SHAPE, modules, seed=number)
    state = dict(network.state_dict())
    mask: dict[str, Tensor] = {}
    if ragged:
        wiring, draw = wiring_of(network, SHAPE), torch.Generator().manual_seed(number)
        sizes = axis_sizes(wiring, state)
        owned = {}
        for axis in hidden_axes(wiring):
            kept = LEAST + (1 - LEAST) * float(torch.rand((), generator=draw))
            count = max(1, round(kept * sizes[axis]))
            owned[axis] = torch.arange(sizes[axis]) < count
        learned = {name: wiring[name] for name, _ in network.named_parameters()}
        mask = owned_mask(state, learned, owned, {})
        state |= {name: state[name] * kept for name, kept in mask.items()}
    return Module(
        name=str(number),
        state=state,
        mask=mask,
        rewarded=(str(number),),
        catalogue=catalogue,
        architecture=Architecture.of(model, SHAPE, modules),
        scaling=Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 255)),
        temperature=1.0,
        origin=f"{number:064}",
    )


def ways_of(parts: Sequence[Module], joint: str) -> tuple[Composition, dict[str, nn.Module]]:
    """The inlay, and the ways to run it by name, on scaled inputs."""
    merged = ia.compose(parts, "inlay")
    one_by_one = inlay_blocks(MergeContext(merged.parts), grouped=False)
    assert one_by_one is not None
    assert merged.in_blocks
    ways: dict[str, nn.Module] = {
        JOINT: initialise(joint, SHAPE, len(parts), seed=0),
        BLOCKS: merged.networks[0].network,
        "one by one": one_by_one.network,
        "logits": Added([ia.compact(part).to_module().network for part in parts]),
    }
    if one_by_one.parameters <= LARGEST:
        with ia.limited(memory="64 GiB"):
            assert merged.joined is not None
            ways["block diagonal"] = merged.joined.to_module().network
    return merged, ways


class Added(nn.Module):
    """Networks apart, whose logits are added."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(x) for network in self.networks]).sum(0)


def block_layers(merged: nn.Module) -> list[BlockConvolution]:
    return [layer for layer in merged.modules() if isinstance(layer, BlockConvolution)]


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def inputs(batch: int, device: str) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.rand(batch, *SHAPE, generator=draw).to(device)


def largest_difference(ways: Mapping[str, nn.Module], options: argparse.Namespace) -> float:
    """Between what the inlay gives, in any way, and the sum of logits, over the largest of them."""
    x = inputs(16, options.device)
    with torch.inference_mode():
        expected = ways["logits"](x)
        off = [
            float((way(x) - expected).abs().max() / expected.abs().max())
            for name, way in ways.items()
            if name != JOINT
        ]
    return max(off)


def latency(ways: Mapping[str, nn.Module], batch: int, options: argparse.Namespace) -> Row:
    """Milliseconds of every way; they take turns, so that a busy moment hits all."""
    x = inputs(batch, options.device)
    if options.precision == "bf16":
        x = x.to(memory_format=torch.channels_last)
    times: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode(), cast(options):
        for _ in range(options.repetitions):
            for name, way in ways.items():
                way(x)
                times[name].append(1000 * seconds_of(lambda way=way: way(x), options.device))
    middle = {name: statistics.median(seen) for name, seen in times.items()}
    return {
        "batch": batch,
        "repetitions": options.repetitions,
        "median_ms": {name: round(value, 3) for name, value in middle.items()},
        "fastest_ms": {name: round(min(seen), 3) for name, seen in times.items()},
        "over_inlay": {name: round(value / middle[BLOCKS], 2) for name, value in middle.items()},
    }


def cast(options: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    if options.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(options.device).type, torch.bfloat16)


def seconds_of(call: Callable[[], object], device: str) -> float:
    """Of a call until the device has done its work."""
    on_cuda = torch.device(device).type == "cuda"
    if on_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if on_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def removal(model: str, options: argparse.Namespace) -> Row:
    """Taking every module out in turn, against the training of the others."""
    data = rows_taken(ia.load_data(options.retrain), options.rows)
    settings: Row = {"model": model, "epochs": options.epochs, "sparsity": 0, "progress": False}
    started = time.perf_counter()
    bank = ia.train(data, device=options.device, **settings)
    training = time.perf_counter() - started
    merged = ia.compose(bank, "inlay").to(options.device)
    names = [part.name for part in merged.parts]
    seconds, alike = [], []
    for name in names:
        started = time.perf_counter()
        fewer = merged - name
        seconds.append(time.perf_counter() - started)
        alike.append(others_stay(merged, fewer))
    return {
        "model": model,
        "data": options.retrain,
        "rows": len(data.train),
        "epochs": options.epochs,
        "modules": len(names),
        "training_seconds": round(training, 2),
        "retraining_seconds": round(training * (len(names) - 1) / len(names), 2),
        "removal_seconds": round(statistics.median(seconds), 4),
        "others_bit_identical": f"{sum(alike)} of {len(alike)}",
    }


def rows_taken(data: ia.Data, rows: int | None) -> ia.Data:
    if rows is None:
        return data
    train, test = subsample(data.train, rows), subsample(data.test, max(1, rows // 5))
    validation = subsample(data.validation, max(1, rows // 5))
    splits = [Split(each.x, each.y) for each in (train, validation, test)]
    return ia.Data.build(data.name, data.catalogue, *splits, data.scaling.kind)


def others_stay(merged: Composition, fewer: Composition) -> bool:
    """Whether all tensors of the other modules are what they were, and theirs, to the last bit."""
    before, after = pieces_of(merged), pieces_of(fewer)
    return all(
        torch.equal(piece, before[name][key])
        and torch.equal(piece, ia.compact(part).state[key].to(piece.device))
        for name, part in zip(after, fewer.parts, strict=True)
        for key, piece in after[name].items()
    )


def pieces_of(merged: Composition) -> dict[str, dict[str, Tensor]]:
    """Of the network that runs, the tensors of each part's own units."""
    network = merged.networks[0].network
    wiring = merged.parts[0].architecture.wiring()
    at = dict.fromkeys(hidden_axes(wiring), 0)
    pieces: dict[str, dict[str, Tensor]] = {}
    layers = {path: m for path, m in network.named_modules() if isinstance(m, BlockConvolution)}
    rest = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    for number, part in enumerate(merged.parts):
        sizes = axis_sizes(wiring, ia.compact(part).state)
        own = pieces.setdefault(part.name, {})
        for key, entry in wiring.items():
            path = key.removesuffix(".weight")
            if path in layers:
                own[key] = layers[path].blocks()[number]
                continue
            hidden = [d for d, axis in enumerate(entry) if axis and axis.name in at]
            for d in hidden:
                axis = entry[d]
                assert axis is not None
                start, length = at[axis.name] * axis.block, sizes[axis.name] * axis.block
                own[key] = rest[key].narrow(d, start, length)
        at = {axis: start + sizes[axis] for axis, start in at.items()}
    return pieces


if __name__ == "__main__":
    main()
