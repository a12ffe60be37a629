"""The readout of a network: the linear layer that makes its logits, and what that layer reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition import Composition
from intarsia.errors import CompositionError, IntarsiaError, ModelError, nearest, shortened
from intarsia.models.custom.adapting import logits_in
from intarsia.models.custom.trial import (
    answering_dtype,
    evaluating,
    evaluation_mode,
    readout_factor,
)
from intarsia.modules import Classifier, Module

PIECE = 512  # inputs that go through a network at a time where no gradient is needed


@dataclass(frozen=True, eq=False)
class Readout:
    """A network from inputs to logits, and its last linear layer by name.

    `model` scales raw inputs itself where it is a Classifier. Logits are what the layer gives times
    `factor`, which belongs to the readout; `offset` is what a calibrated composition adds to them.
    Where it `picks`, the layer reads several places of a row, such as tokens, and the network
    answers with what it gives for one of them.
    """

    model: nn.Module
    layer: nn.Linear
    name: str
    factor: float = 1.0
    offset: Tensor | None = None
    reads: torch.dtype | None = None  # of inputs; None where the model sees to that itself
    picks: bool = False

    def features(self, x: Tensor, piece: int = PIECE) -> tuple[Tensor, Tensor]:
        """What the layer reads, N x D, and the logits, N x C; both where the network is."""
        with evaluation_mode(self.model), torch.no_grad():
            pairs = [self._read(rows) for rows in x.split(piece)]
        features, logits = zip(*pairs, strict=True)
        return torch.cat(features), torch.cat(logits)

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        caught: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(
            lambda _, *given: caught.append(_read_by(*given).detach()), with_kwargs=True
        )
        try:
            logits = self.answer(rows)
        finally:
            hook.remove()
        return self._picked(rows) if self.picks else caught[0], logits

    def _picked(self, rows: Tensor) -> Tensor:
        """What the layer reads at the place from which each row is answered.

        The layer's inputs go on through the network in place of its outputs, so that the network
        itself picks the place.
        """
        network = self.model.network if isinstance(self.model, Classifier) else self.model
        caught: list[Tensor] = []

        def catch(_: nn.Module, __: Any, made: Any) -> Tensor:
            caught.append(logits_in(made) / self.factor)
            return caught[0].new_zeros(len(rows), self.layer.out_features)

        hooks = [
            self.layer.register_forward_hook(
                lambda _, given, named, __: _read_by(given, named), with_kwargs=True
            ),
            network.register_forward_hook(catch),
        ]
        try:
            self.answer(rows)
        finally:
            for hook in hooks:
                hook.remove()
        return caught[0]

    def answer(self, rows: Tensor) -> Tensor:
        """Logits of raw inputs, taken to where the network is."""
        logits: Tensor = logits_in(self.model(rows.to(self.layer.weight.device, self.reads)))
        return logits

    @contextmanager
    def replaced(self, head: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """While open, a head makes the network's logits and all else is frozen; then as it was."""
        learned = [p for p in self.model.parameters() if p.requires_grad]
        hook = self.layer.register_forward_hook(
            lambda _, given, named, __: head(_read_by(given, named).float()) / self.factor,
            with_kwargs=True,
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


def _read_by(given: tuple[Tensor, ...], named: Mapping[str, Tensor]) -> Tensor:
    """What a Linear layer was called with, as `layer(x)` or `layer(input=x)`."""
    return given[0] if given else named["input"]


def readout_of(model: nn.Module | Module, x: Tensor, head: str | None = None) -> Readout:
    """The readout of a Composition, Module, Classifier or any network, found on a few inputs.

    It is the layer whose output, times a constant at most, the network answers with: the one that
    makes the output axis of its wiring. Of a layer that reads every token it may be the output for
    one of them. `head` names it, as in "fc". A composition must be one network.
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
            f"a {type(model).__name__} has no readout: give a composition, as compose(bank, "
            "'sum') makes one, a module or an nn.Module"
        )
    trial = _Trial(model, x[:2])
    name, factor = trial.found() if head is None else (head, trial.factor_of(head))
    layer = trial.network.get_submodule(name)
    return Readout(model, layer, name, factor, offset, trial.reads, trial.picks(name))


def readout_inputs(network: nn.Module, x: Tensor, batch: int = PIECE) -> Tensor:
    """What the last linear layer reads for these inputs, N x D where the network is."""
    return readout_of(network, x).features(x, batch)[0]


class _Trial:
    """A few inputs on their way through a network: which layer makes the logits?"""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model = model
        self.network: Any = model.network if isinstance(model, Classifier) else model
        one = tuple(x.shape[1:])
        self.reads = None if isinstance(model, Classifier) else answering_dtype(model, one)
        tensor = next(iter([*model.parameters(), *model.buffers()]), torch.zeros(()))
        self.x = x.to(tensor.device, self.reads)
        self.shapes: dict[str, list[torch.Size]] = {}  # what linear layers gave, as called
        layers = [(n, m) for n, m in self.network.named_modules() if isinstance(m, nn.Linear)]
        self.answer = self._answer([(layer, self._noting(name)) for name, layer in layers])
        if not isinstance(self.answer, Tensor) or self.answer.dim() != 2:
            shape = getattr(self.answer, "shape", None)
            seen = f"a {type(self.answer).__name__}" if shape is None else tuple(shape)
            raise ModelError(
                f"{type(self.network).__name__} gives {seen}: expected logits N x C, or what "
                "has them as `.logits` or by that name in a dict"
            )

    def found(self) -> tuple[str, float]:
        """The layer that makes the logits, and the factor that they are multiplied by."""
        for name in reversed(self.shapes):
            factor = self._factor(name)
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
        factor = self._factor(head)
        if factor is None:
            raise ModelError(
                f"the head {head!r} does not make the logits of {kind}: name the layer whose "
                "output it answers with"
            )
        return factor

    def _factor(self, name: str) -> float | None:
        """What the logits are of this layer's output: that times a number, or something else."""
        shapes = self.shapes.get(name, [])
        if len(shapes) != 1 or len(shapes[0]) < 2:
            return None
        (shape,) = shapes
        if (shape[0], shape[-1]) != tuple(self.answer.shape):
            return None
        layer = self.network.get_submodule(name)
        return readout_factor(layer, lambda: self._answer([]), shape) or None

    def picks(self, name: str) -> bool:
        """Whether the logits are the layer's output for one of several places."""
        return self.shapes[name][0] != self.answer.shape

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
        return logits_in(answers[-1])
