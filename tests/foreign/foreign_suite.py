"""What intarsia does with each foreign network, checked against numbers made by hand."""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from foreign_networks import NETWORKS, Foreign, data_for
from torch import Tensor

import intarsia as ia
from intarsia.composition import align
from intarsia.data import Data
from intarsia.errors import IntarsiaError, WiringError
from intarsia.exports import export_program
from intarsia.models import build, initialise
from intarsia.models.axes import axis_sizes, hidden_axes, joint_axes, runs
from intarsia.models.units import take_units
from intarsia.modules import Bank, Module, logits_of
from intarsia.pruning import normalisations

SETTINGS: dict[str, Any] = {
    "partition": [["a"], ["b"]],
    "epochs": 1,
    "batch": 12,
    "learning_rate": 0.02,
    "rounds": 1,
    "progress": False,
    "device": "cpu",
}
KEPT = 1e-5  # of the logits' size: what a permutation may change by rounding
CLOSE = 1e-4  # of the logits' size, in float32
SEEN = {
    "trains": "the engine's modules answer like those of a plain loop over samples",
    "prunes": "half of all matrices and kernels are exact zeros; normalisations stay whole",
    "sums": '`compose(bank, "sum")` has the parts\' tensors added by hand, and answers accordingly',
    "aligns": (
        "units change places and the answers stay, to 1e-5; so they do when `align` moves them"
    ),
    "lies inlaid": '`compose(bank, "inlay")` answers with the sum of the parts\' logits',
    "compacts": "units that no weight reads any more are left out, and the answers stay",
    "exports": "`export_program` answers like the composition, for another number of rows",
    "file": (
        "a file read again gives the same bits, and refuses a network that computes another thing"
    ),
}
COLUMNS = tuple(SEEN)


class WrongError(AssertionError):
    """A number that is not what it should be."""


class Suite:
    """One network's cells; every method returns if its cell is right, or raises."""

    def __init__(self, network: Foreign, folder: Path) -> None:
        self.network, self.folder = network, folder
        self.factory = network.factory

    @cached_property
    def data(self) -> Data:
        return data_for(self.network.reads)

    @cached_property
    def dense(self) -> Bank:
        return ia.train(self.data, model=self.factory, sparsity=0, **SETTINGS | {"rounds": 0})

    @cached_property
    def bank(self) -> Bank:
        return ia.train(self.data, model=self.factory, sparsity=0.5, **SETTINGS)

    def cells(self) -> dict[str, str]:
        """yes, or the reason of a refusal, by column; a wrong number raises."""
        checks = (
            self.trains, self.prunes, self.sums, self.aligns, self.inlays, self.compacts,
            self.exports, self.files,
        )  # fmt: skip
        result = {}
        for column, check in zip(COLUMNS, checks, strict=True):
            try:
                check()
                result[column] = "yes"
            except IntarsiaError as refusal:
                result[column] = str(refusal)
        return result

    def trains(self) -> None:
        """The engine's modules answer like those of the plain loop."""
        settings = SETTINGS | {"rounds": 0, "engine": "plain"}
        plain = ia.train(self.data, model=self.factory, sparsity=0, **settings)
        for mine, other in zip(self.dense, plain, strict=True):
            self.check_close(self.logits(mine), self.logits(other), 0.05)
            origin = initialise(self.factory, self.data.shape, len(self.data.catalogue), 0)
            if all(torch.equal(mine.state[n], p) for n, p in origin.named_parameters()):
                raise WrongError("training has moved nothing")

    def prunes(self) -> None:
        """Half of the matrices and kernels are exact zeros, and nothing else is touched."""
        skeleton = self.bank[0].architecture.skeleton(self.factory)
        norms = normalisations(skeleton)
        sizes = {n: p.numel() for n, p in skeleton.named_parameters() if p.ndim > 1}
        merged = sum(size for name, size in sizes.items() if name not in norms)
        for module in self.bank:
            gone = sum(int((~mask).sum()) for mask in module.mask.values())
            if gone != round(merged / 2):
                raise WrongError(f"{gone} of {merged} weights are pruned")
            if not module.mask.keys() <= sizes.keys() - norms:
                raise WrongError(f"{set(module.mask)} were pruned")
            if any(bool((module.state[n][~mask] != 0).any()) for n, mask in module.mask.items()):
                raise WrongError("a pruned weight is not 0")

    def sums(self) -> None:
        """The sum's tensors are those added by hand, and so are its answers."""
        joined = ia.compose(self.bank, "sum").joined
        assert joined is not None
        one, other = (part.state for part in self.bank)
        state = {
            name: one[name] + other[name] if entry.learned else _buffer(one[name], other[name])
            for name, entry in joined.plan.items()
        }
        for name, tensor in state.items():
            if not torch.allclose(joined.state[name].double(), tensor.double()):
                raise WrongError(f"the sum's {name} is not the sum")
        network = build(self.factory, self.data.shape, len(self.data.catalogue))
        network.load_state_dict(state)
        x = self.data.scaling(self.data.test.x)
        x = self.data.test.x if self.network.reads == "tokens" else x
        self.check_close(self.logits(joined), network.eval()(x).detach(), CLOSE)

    def aligns(self) -> None:
        """Units that changed places are moved again, and the part answers as before."""
        first = self.dense[0]
        wiring = first.architecture.wiring(self.factory)
        sizes = axis_sizes(wiring, first.state)
        orders = {axis: torch.arange(sizes[axis]).roll(1) for axis in hidden_axes(wiring)}
        state = take_units(first.state, wiring, orders)
        other = replace(first, name="other", state=state)
        aligned = align([first, other])
        self.check_close(self.logits(aligned[1]), self.logits(other), CLOSE)
        self.check_close(self.logits(other), self.logits(first), KEPT)
        if not orders:
            raise WiringError(f"{self.network.name} has no hidden units to move")
        if all(torch.equal(aligned[1].state[name], t) for name, t in state.items()):
            raise WrongError("aligning has moved nothing")

    def inlays(self) -> None:
        """The one network says the sum of what the parts say.

        Of parts that were not pruned: two that share the width of one by chance would prove little.
        """
        joined = ia.compose(self.dense, "inlay").joined
        assert joined is not None
        total = self.logits(self.dense[0]) + self.logits(self.dense[1])
        self.check_close(self.logits(joined), total, CLOSE)

    def compacts(self) -> None:
        """Without the last unit of each axis, which no weight reads any more, it says the same."""
        first = self.dense[0]
        wiring = first.architecture.wiring(self.factory)
        axes = set(hidden_axes(wiring)) - joint_axes(wiring)
        if not axes:
            raise WiringError(f"{self.network.name} has no units that can be left out alone")
        sizes = axis_sizes(wiring, first.state)
        state, mask = dict(first.state), {}
        for name, entry in wiring.items():
            kept = torch.ones_like(state[name], dtype=torch.bool)
            for run in runs(entry, state[name].shape, sizes):
                if run.axis.name in axes and run.dimension == 1 and sizes[run.axis.name] > 1:
                    end, block = run.start + run.length, run.axis.block
                    kept.narrow(1, end - block, block).fill_(False)
            if not bool(kept.all()):
                state[name], mask[name] = state[name] * kept, kept
        module = replace(first, state=state, mask=mask)
        small = ia.compact(module)
        self.check_close(self.logits(small), self.logits(module), CLOSE)
        if sum(t.numel() for t in small.state.values()) >= sum(t.numel() for t in state.values()):
            raise WiringError(f"{self.network.name} has no unit that any weight reads by itself")

    def exports(self) -> None:
        """torch.export's program answers like the composition, to any number of rows."""
        merged = ia.compose(self.bank, "sum")
        program = export_program(merged).module()
        rows = self.data.test.x[:5].float()
        self.check_close(program(rows).detach(), logits_of(merged, rows), CLOSE)

    def files(self) -> None:
        """Read again, a module says the same; another function is not taken for its network."""
        path = self.folder / "module.safetensors"
        module = self.bank[0]
        module.save(path)
        loaded = Module.load(path, self.factory)
        if loaded.digest != module.digest or not torch.equal(
            self.logits(loaded), self.logits(module)
        ):
            raise WrongError("the file holds another module")
        merged = ia.compose(self.bank, "logits")
        merged.save(path)
        again = ia.Composition.load(path, self.factory)
        self.check_close(logits_of(again, self.data.test.x), logits_of(merged, self.data.test.x), 0)
        try:
            ia.Composition.load(path, self._bent)
        except IntarsiaError:
            return
        raise WrongError("another network was taken for this one")

    def _bent(self, shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
        network = build(self.factory, shape, outputs)
        network.register_forward_hook(lambda module, args, logits: logits + 0.1 * logits.tanh())
        return network

    def logits(self, module: Module) -> Tensor:
        return logits_of(module.to_module(), self.data.test.x)

    @staticmethod
    def check_close(one: Tensor, other: Tensor, tolerance: float) -> None:
        off = float((one - other).abs().max() / other.abs().max())
        if not off <= tolerance:
            raise WrongError(f"the answers are {off:.3g} of their size off")


def _buffer(one: Tensor, other: Tensor) -> Tensor:
    return (one + other) / 2 if one.is_floating_point() else torch.maximum(one, other)


def reason(message: str) -> str:
    """A refusal without the remedy and without what names the operator, which the column does."""
    message = re.sub(
        r"^\w+ (moves units|works on units) and needs the network's wiring: ", "", message
    )
    message = re.sub(r"(it fails with \w+): .*", r"\1", message)  # in torch's words, which change
    return message.split(";")[0].split(": join them by")[0]


def tried(cells: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """What the file of results has: yes, or the reason alone."""
    return {name: {c: reason(said) for c, said in row.items()} for name, row in cells.items()}


def all_cells() -> dict[str, dict[str, str]]:
    """Every network's cells."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: Suite(network, Path(folder)).cells() for name, network in NETWORKS.items()}
