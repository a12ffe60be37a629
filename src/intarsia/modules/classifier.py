"""Raw inputs to logits over the catalogue: what a module or a composition is as an nn.Module."""

import math
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.data import Data, Scaling, Split, to_shape
from intarsia.data.arrays import shape_of
from intarsia.encoders import Encoder
from intarsia.encoders.encoder import is_texts
from intarsia.errors import DataError, ModelError, shortened
from intarsia.models.custom.adapting import logits_in
from intarsia.models.custom.trial import answering_dtype, evaluation_mode, input_dtype
from intarsia.modules.statistics import is_half

Inputs = np.ndarray | Tensor | Sequence[Any]


class Predicting(nn.Module):
    """`predict` and `predict_proba` for anything whose forward takes raw inputs to logits."""

    catalogue: tuple[str, ...]
    rewarded: tuple[str, ...]
    temperature: float
    encoder: Encoder | None = None
    columns: tuple[str, ...] = ()  # of the table that it was trained on, if any

    def predict_proba(self, x: Inputs, batch: int = 4096) -> Tensor:
        """softmax(logits / temperature), N x C on the CPU; evaluation mode, no gradients."""
        return torch.softmax(logits_of(self, x, batch) / self.temperature, dim=1)

    def predict(self, x: Inputs, batch: int = 4096, abstain: float | None = None) -> Tensor:
        """The most probable class of each input, as indices into the catalogue.

        With `abstain` the answer is -1, none of mine, where its entropy is above that fraction of
        log C; `intarsia.threshold` chooses one. C counts the whole catalogue, also classes that no
        module rewards: a uniform answer is uniform over all of them.
        """
        logits = logits_of(self, x, batch)
        answers = logits.argmax(dim=1)
        if abstain is None:
            return answers
        most = check_abstain(abstain)
        return answers.masked_fill(uncertainty(logits, self.temperature) > most, -1)


class Classifier(Predicting):
    """A network with its scaling, temperature and class names; takes raw inputs, numpy or tensors.

    With an `encoder` these are what that reads, or features that it gave before.

    A network with one output more than the catalogue has an explicit "other", last. Its probability
    is divided evenly: with p = softmax(z / t) the logits are t log(p_c + p_other / C). Logits that
    the network gives in half precision become float32, so that adding them up rounds no further.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        catalogue: Sequence[str],
        shape: Sequence[int],
        scaling: Scaling,
        rewarded: Sequence[str] | None = None,
        temperature: float = 1.0,
        encoder: Encoder | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.network = network
        self.encoder, self.columns = encoder, tuple(columns)
        self.catalogue = tuple(catalogue)
        self.rewarded = self.catalogue if rewarded is None else tuple(rewarded)
        self.temperature = float(temperature)
        self.shape = tuple(shape)
        self.scaling = scaling
        # Buffers, so that they move with the network; not in the state, which stays the network's.
        tensor = next(iter([*network.parameters(), *network.buffers()]), scaling.scale)
        for name in ("shift", "scale"):
            number = getattr(scaling, name).to(tensor.device, copy=True)
            self.register_buffer(name, number, persistent=False)
        self.reads_integers = (
            scaling.kind == "none" and input_dtype(network, self.shape) == torch.int64
        )

    def forward(self, x: Inputs) -> Tensor:
        # The buffers lie where the network does, and are as wide: float32, or what .double() makes.
        dtype = torch.int64 if self.reads_integers else self.scale.dtype  # as token ids are
        rows = network_inputs(x, self.shape, self.encoder, self.scale.device)
        rows = rows.to(self.scale.device, dtype)
        if self.scaling.kind != "none":
            rows = (rows - self.shift) * self.scale
        logits = _answered(self.network, rows)
        classes = len(self.catalogue)
        if logits.dim() != 2 or logits.shape[1] not in (classes, classes + 1):
            raise ModelError(
                f"the network gives logits of shape {tuple(logits.shape)}: expected N x {classes} "
                f"for {classes} classes, or N x {classes + 1} with an explicit other"
            )
        if is_half(logits):
            logits = logits.float()
        if logits.shape[1] == classes:
            return logits
        return divide_other(logits, classes, self.temperature)

    def extra_repr(self) -> str:
        return f"rewarded={'+'.join(self.rewarded)}, temperature={self.temperature:g}"


def logits_of(model: nn.Module, x: Inputs, batch: int = 4096, flips: bool = False) -> Tensor:
    """The model's logits on the CPU, batch by batch, in evaluation mode and without gradients.

    A Classifier or Composition takes raw inputs; any other network is given them as float32, or,
    where it cannot read that, in the type of its own weights or as whole numbers. With `flips` the
    inputs are pictures, N x channels x height x width, and logits the mean of those for a picture
    and for its mirror image.
    """
    if batch < 1:
        raise DataError(f"batch is {batch}: expected at least 1")
    if is_texts(x) and isinstance(model, Predicting) and model.encoder is not None:
        x = model.encoder.tokens(x)
    if isinstance(model, Predicting):
        _check_frame(model.columns, x)
    rows = raw_inputs(x)
    if flips:
        _check_pictures(rows)
    tensor = next(iter([*model.parameters(), *model.buffers()]), torch.zeros(()))
    one = tuple(rows.shape[1:])
    reads = None if isinstance(model, Predicting) else answering_dtype(model, one)
    pieces = []
    with evaluation_mode(model), torch.no_grad():
        # An empty input still goes through once, for the number of classes.
        for start in range(0, max(len(rows), 1), batch):
            piece = rows[start : start + batch]
            _check_finite(piece, start)
            piece = piece.to(tensor.device, reads)
            try:
                logits = _answered(model, piece)
            except IndexError:
                _check_ids(model, piece)
                raise
            if flips:
                logits = (logits + _answered(model, piece.flip(3))) / 2
            pieces.append(logits.cpu())
    return torch.cat(pieces)


def _answered(model: nn.Module, rows: Tensor) -> Tensor:
    logits = logits_in(model(rows))
    if not isinstance(logits, Tensor):
        raise ModelError(
            f"{type(model).__name__} gives a {type(logits).__name__}: expected logits N x C, or "
            "what has them as `.logits` or by that name in a dict"
        )
    return logits


def _check_ids(model: nn.Module, rows: Tensor) -> None:
    """Once the model has failed on the rows: whether an Embedding is given ids that it has not."""

    def check(name: str, layer: nn.Module, given: tuple[Tensor, ...], named: Any) -> None:
        assert isinstance(layer, nn.Embedding)
        count, ids = layer.num_embeddings, given[0] if given else named["input"]
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= count:
            raise DataError(
                f"layer {name!r} has {count:,} embeddings, for ids from 0 to {count - 1:,}, and is "
                f"given ids from {low:,} to {high:,}: give ids of the vocabulary that the network "
                "was trained with, and no more tokens than it has positions"
            )

    with ExitStack() as hooks:
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Embedding):
                hook = layer.register_forward_pre_hook(partial(check, name), with_kwargs=True)
                hooks.enter_context(hook)
        with suppress(IndexError):
            model(rows)


def uncertainty(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Entropy of softmax(logits / temperature) as a fraction of log C, one float64 per row.

    0 is sure, 1 is uniform; over a catalogue of one class every answer is sure.
    """
    log_p = torch.log_softmax(logits.double() / temperature, dim=1)
    entropy = -(log_p.exp() * log_p).sum(dim=1)
    return (entropy / math.log(max(logits.shape[1], 2))).clamp(0, 1)


def check_abstain(fraction: float) -> float:
    """`fraction` if it is one of log C, our error otherwise."""
    number = isinstance(fraction, int | float | np.number) and not isinstance(fraction, bool)
    if not number or not 0 <= fraction <= 1:
        raise DataError(
            f"abstain is {fraction!r}: expected a fraction of the largest entropy, from 0 to 1"
        )
    return float(fraction)


def _check_frame(known: tuple[str, ...], x: Inputs) -> None:
    """A data frame must have its columns in the order that they were trained in."""
    names = tuple(map(str, getattr(x, "columns", ())))
    if names != known and sorted(names) == sorted(known):
        raise DataError(
            f"the inputs have the columns {shortened(list(names))}, and the model was trained on "
            f"{shortened(list(known))}: bring them into this order, as x[list(model.columns)] does"
        )


def raw_inputs(x: Inputs, shape: tuple[int, ...] | None = None) -> Tensor:
    """Inputs as a tensor, N x *shape where one is given (see to_shape); float64 to float32."""
    if isinstance(x, str):
        raise DataError(f"the inputs are {shortened(x)}, a word: load them, as by load_data")
    if isinstance(x, Split | Data):
        raise DataError(f"the inputs are a {type(x).__name__}: give its rows, as in data.test.x")
    try:
        tensor = x if isinstance(x, Tensor) else torch.as_tensor(np.ascontiguousarray(x))
    except (TypeError, ValueError) as error:
        raise DataError(f"the inputs are not numbers: {error}") from error
    if tensor.is_complex():
        raise DataError("the inputs are complex numbers: expected real ones")
    if tensor.dtype == torch.float64:
        tensor = tensor.to(torch.float32)
    if tensor.dim() < 2:
        raise DataError(
            f"the inputs have shape {tuple(tensor.shape)}: expected N rows; "
            "for a single input add a first axis, as in x[None]"
        )
    return tensor if shape is None else to_shape(tensor, shape, "the inputs")


def network_inputs(
    x: Inputs,
    shape: tuple[int, ...],
    encoder: Encoder | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Inputs as N x *shape, or their features, where there is an encoder and they are raw."""
    if encoder is None:
        return raw_inputs(x, shape)
    rows = encoder.tokens(x) if is_texts(x) else raw_inputs(x)
    given = tuple(rows.shape[1:])
    if given == shape:
        return rows
    pictures = encoder.resizes and len(given) in (2, 3)
    form = shape_of(given) if pictures else encoder.shape
    try:
        if not encoder.reads(form):
            raise DataError("neither grey nor in colour")
        rows = to_shape(rows, form, "the inputs")
    except DataError:
        raise DataError(
            f"the inputs have shape {tuple(rows.shape)}: expected what the encoder {encoder} "
            f"reads, {encoder.expected}, or N x {encoder.features} features of it"
        ) from None
    return encoder(rows, device)


def _check_pictures(rows: Tensor) -> None:
    """Whether the last axis is a picture's width, which can be mirrored."""
    if rows.dim() != 4 or shape_of(tuple(rows.shape[1:])) != tuple(rows.shape[1:]):
        raise DataError(
            f"flips mirrors pictures, N x channels x height x width, and these inputs have shape "
            f"{tuple(rows.shape)}: leave it out"
        )


def _check_finite(rows: Tensor, start: int) -> None:
    """A network answers NaN with a class like any other; `start` is the number of the first row."""
    if not rows.is_floating_point() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    if not torch.isfinite(rows).all():
        bad = ~torch.isfinite(rows.reshape(len(rows), -1))
        first = start + int(bad.any(dim=1).nonzero()[0])
        raise DataError(
            f"{int(bad.sum())} values of the inputs are NaN or infinite in float32, first in row "
            f"{first} (counted from 0): remove or fill them"
        )


def divide_other(logits: Tensor, classes: int, temperature: float) -> Tensor:
    """Logits over the classes alone, from those with an explicit other in the last place."""
    p = torch.log_softmax(logits / temperature, dim=1)
    other = p[:, -1:] - math.log(classes)
    return temperature * torch.logaddexp(p[:, :-1], other)
