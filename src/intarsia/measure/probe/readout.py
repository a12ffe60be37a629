"""The readout of a network: the linear layer that makes its logits, and what that layer reads."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition import Composition
from intarsia.errors import CompositionError, IntarsiaError, ModelError, nearest, shortened
from intarsia.models.custom.trial import evaluating, evaluation_mode, input_dtype, readout_factor
from intarsia.modules import Classifier, Module

PIECE = 512  # inputs that go through a network at a time where no gradient is needed


@dataclass(frozen=True, eq=False)
class Readout:
    """A network from inputs to logits, and its last linear layer by name.

    `model` scales raw inputs itself where it is a Classifier. Logits are what the layer gives times
    `factor`, which belongs to the readout; `offset` is what a calibrated composition adds to them.
    """

    model: nn.Module
    layer: nn.Linear
    name: str
    factor: float = 1.0
    offset: Tensor | None = None
    reads: torch.dtype | None = None  # of inputs; None where the model sees to that itself

    def features(self, x: Tensor, piece: int = PIECE) -> tuple[Tensor, Tensor]:
        """What the layer reads, N x D, and the logits, N x C; both where the network is."""
        caught: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(
            lambda _, given: caught.append(given[0].detach())
        )
        try:
            with evaluation_mode(self.model), torch.no_grad():
                logits = [self.answer(rows) for rows in x.split(piece)]
        finally:
            hook.remove()
        return torch.cat(caught), torch.cat(logits)

    def answer(self, rows: Tensor) -> Tensor:
        """Logits of raw inputs, taken to where the network is."""
        logits: Tensor = self.model(rows.to(self.layer.weight.device, self.reads))
        return logits

    @contextmanager
    def replaced(self, head: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """The network with a head that makes its logits, all else frozen; then as it was."""
        learned = [p for p in self.model.parameters() if p.requires_grad]
        hook = self.layer.register_forward_hook(
            lambda _, given, __: head(given[0].float()) / self.factor
        )
        try:
            for parameter in learned:
                parameter.requires_grad_(False)
            with evaluation_mode(self.model):
                yield
        finally:
            hook.remove()
            for parameter in learned:
                parameter.requires_grad_(True)


def readout_of(model: nn.Module | Module, x: Tensor, head: str | None = None) -> Readout:
    """The readout of a Composition, Module, Classifier or any network, found on a few inputs.

    It is the layer whose output, times a constant at most, the network answers with: the one that
    makes the output axis of its wiring. `head` names it, as in "fc". A composition must be one
    network.
    """
    offset: Tensor | None = None
    if isinstance(model, Composition):
        if model.apart:
            raise CompositionError(
                f"{model.operator} joins the logits of {len(model.parts)} networks, which have no "
                'readout in common: join the modules in one network, as by "sum" or "inlay", or '
                "probe one of them"
            )
        offset, model = model.offset, model.networks[0]
    elif isinstance(model, Module):
        model = model.to_module()
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"a {type(model).__name__} has no readout: give a composition, a module or an nn.Module"
        )
    trial = _Trial(model, x[:2])
    name, factor = trial.found() if head is None else (head, trial.factor_of(head))
    layer = trial.network.get_submodule(name)
    return Readout(model, layer, name, factor, offset, trial.reads)


def readout_inputs(network: nn.Module, x: Tensor, batch: int = PIECE) -> Tensor:
    """What the last linear layer reads for these inputs, N x D where the network is."""
    return readout_of(network, x).features(x, batch)[0]


class _Trial:
    """A few inputs on their way through a network: which layer makes the logits?"""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model = model
        self.network: Any = model.network if isinstance(model, Classifier) else model
        one = tuple(x.shape[1:])
        self.reads = None if isinstance(model, Classifier) else input_dtype(model, one)
        tensor = next(iter([*model.parameters(), *model.buffers()]), torch.zeros(()))
        self.x = x.to(tensor.device, self.reads)
        self.shapes: dict[str, list[torch.Size]] = {}  # what linear layers gave, as called
        layers = [(n, m) for n, m in self.network.named_modules() if isinstance(m, nn.Linear)]
        self.answer = self._answer([(layer, self._noting(name)) for name, layer in layers])
        if not isinstance(self.answer, Tensor) or self.answer.dim() != 2:
            shape = getattr(self.answer, "shape", None)
            seen = f"a {type(self.answer).__name__}" if shape is None else tuple(shape)
            raise ModelError(
                f"{type(self.network).__name__} gives {seen}: expected logits N x C; wrap it in a "
                "module whose forward returns them"
            )

    def found(self) -> tuple[str, float]:
        """The layer that makes the logits, and the factor that they are multiplied by."""
        for name in reversed(self.shapes):
            factor = self._factor(name) if self.shapes[name] == [self.answer.shape] else None
            if factor is not None:
                return name, factor
        what = "does not answer with what a linear layer gives"
        raise ModelError(
            f"{type(self.network).__name__} {what if self.shapes else 'has no linear layer'}: a "
            "fresh head takes the place of the Linear layer that makes the logits"
        )

    def factor_of(self, head: str) -> float:
        """The factor of the layer of this name, which must make the logits."""
        layers, kind = dict(self.network.named_modules()), type(self.network).__name__
        if head not in layers:
            linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
            raise ModelError(
                f"{kind} has no layer {shortened(head)} to be its head: "
                f"{nearest(head, linear or layers)}"
            )
        if not isinstance(layers[head], nn.Linear):
            raise ModelError(
                f"the head {head!r} is a {type(layers[head]).__name__}: a fresh head takes the "
                "place of a Linear layer; name that one"
            )
        factor = self._factor(head) if self.shapes.get(head) == [self.answer.shape] else None
        if factor is None:
            raise ModelError(
                f"the head {head!r} does not make the logits of {kind}: name the layer whose "
                "output it answers with"
            )
        return factor

    def _factor(self, name: str) -> float | None:
        """What the logits are of this layer's output: that times a number, or something else."""
        layer = self.network.get_submodule(name)
        return readout_factor(layer, lambda: self._answer([]), self.answer.shape) or None

    def _noting(self, name: str) -> Any:
        def note(_: nn.Module, __: Any, given: Tensor) -> None:
            self.shapes.setdefault(name, []).append(given.shape)

        return note

    def _answer(self, watched: Sequence[tuple[nn.Module, Any]]) -> Any:
        """What the network says, seen before a Classifier does anything to it."""
        answers: list[Any] = []
        hooks = [layer.register_forward_hook(note) for layer, note in watched]
        hooks.append(self.network.register_forward_hook(lambda _, __, made: answers.append(made)))
        try:
            with evaluating(self.model):
                self.model(self.x)
        except IntarsiaError:
            raise
        except Exception as cause:
            raise ModelError(
                f"{type(self.network).__name__} fails on {len(self.x)} inputs of shape "
                f"{tuple(self.x.shape[1:])}: {type(cause).__name__}: {cause}"
            ) from cause
        finally:
            for hook in hooks:
                hook.remove()
        return answers[-1]
