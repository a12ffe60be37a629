"""One MLP with its gradients written out by hand.

With h = relu(W x + b) * keep in the hidden layers and p = softmax(z / t), a sample's loss pulls on
log p by g = -target * fraction, dz = (g - p * sum(g)) / t, and going back dW = d^T h, db = sum d,
dh = (d W) * keep * [h > 0]. sum(g) stays: in floats a row of the table does not add up to 1.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from intarsia.training.engines.adam import adam_step
from intarsia.training.engines.base import ObjectiveStack, Slot
from intarsia.training.settings.schedules import LearningRate, each_batch

BULK = 16  # batches whose small work is done together
BITS = torch.tensor([[(byte >> bit) & 1 for bit in range(8)] for byte in range(256)]).float()


class HandMlp:
    """Forward, backward and Adam on the tensors of one slot."""

    def __init__(
        self, slot: Slot, mask: Mapping[str, Tensor], dropout: float, temperature: float
    ) -> None:
        layers = sum(name.endswith(".weight") for name in slot.parameters)
        self.slot, self.dropout, self.temperature = slot, dropout, temperature
        self.weights = [slot.parameters[f"layers.{i}.weight"] for i in range(layers)]
        self.biases = [slot.parameters[f"layers.{i}.bias"] for i in range(layers - 1)]
        grads = {n: torch.zeros_like(p) for n, p in slot.parameters.items()}
        self.weight_grads = [grads[f"layers.{i}.weight"] for i in range(layers)]
        self.bias_grads = [grads[f"layers.{i}.bias"] for i in range(layers - 1)]
        self.masked = [(grads[n], m.float()) for n, m in mask.items() if not bool(m.all())]
        self.grads = list(grads.values())

    def logits(self, x: Tensor) -> Tensor:
        """Logits without dropout; 1, N, O."""
        for weight, bias in zip(self.weights, self.biases, strict=False):
            x = torch.addmm(bias, x, weight.t()).relu_()
        return (x @ self.weights[-1].t())[None]

    def epoch(
        self,
        x_all: Tensor,
        y_all: Tensor,
        batches: Sequence[Tensor],
        objectives: ObjectiveStack,
        k: int,
        learning_rate: LearningRate,
        draw: torch.Generator,
    ) -> float:
        """Train on all batches towards objective k; returns the mean loss."""
        keeps = [_factors(len(batches[0]), len(b), self.dropout, draw) for b in self.biases]
        rates = each_batch(learning_rate, len(batches))
        weights, state = list(self.slot.parameters.values()), self.slot.optimiser
        losses = 0.0
        for first in range(0, len(batches), BULK):
            some = batches[first : first + BULK]
            places = torch.stack(list(some))  # R, B
            labels = y_all[places]
            target = objectives.table[k][labels]  # R, B, O
            weight = objectives.weight[k][labels]
            if objectives.sample_weight is not None:
                weight = weight * objectives.sample_weight[places]
            total = weight.sum(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)
            fraction = weight / total  # of the batch
            bonus = objectives.bonus[k][labels] if objectives.has_bonus else None
            pull = -target * fraction[..., None]  # of the loss on log p
            log_p = torch.empty_like(target)
            for i, indices in enumerate(some):
                x = x_all.index_select(0, indices)
                hidden = self._forward(x, keeps, log_p[i])
                if bonus is not None:
                    p, weight = log_p[i].exp(), (bonus[i] * fraction[i])[:, None]
                    pull[i] += weight * p * (1 + log_p[i])
                d = torch.ops.aten._log_softmax_backward_data(pull[i], log_p[i], 1, pull.dtype)
                self._backward(d if self.temperature == 1 else d.div_(self.temperature), hidden)
                adam_step(weights, self.grads, state.moments, state.steps, rates[first + i])
            loss = -(target * log_p).sum(-1)
            if bonus is not None:
                loss += bonus * (log_p.exp() * log_p).sum(-1)
            losses += float((loss * fraction).sum())
        return losses / len(batches)

    def _forward(self, x: Tensor, keeps: Sequence[Iterator[Tensor]], log_p: Tensor) -> list[Tensor]:
        """Activations of every layer; writes log softmax into log_p."""
        hidden = [x]
        for weight, bias, keep in zip(self.weights, self.biases, keeps, strict=False):
            h = torch.addmm(bias, hidden[-1], weight.t()).relu_()
            hidden.append(h.mul_(next(keep)) if self.dropout else h)
        z = torch.mm(hidden[-1], self.weights[-1].t())
        torch.log_softmax(z if self.temperature == 1 else z.div_(self.temperature), 1, out=log_p)
        return hidden

    def _backward(self, d: Tensor, hidden: list[Tensor]) -> None:
        for layer in range(len(self.weights) - 1, -1, -1):
            torch.mm(d.t(), hidden[layer], out=self.weight_grads[layer])
            if layer < len(self.biases):
                torch.sum(d, 0, out=self.bias_grads[layer])
            if layer:
                d = torch.ops.aten.threshold_backward(d @ self.weights[layer], hidden[layer], 0)
                if self.dropout:
                    d.mul_(1 / (1 - self.dropout))
        for grad, mask in self.masked:
            grad.mul_(mask)


def _factors(batch: int, units: int, dropout: float, draw: torch.Generator) -> Iterator[Tensor]:
    """Dropout factors, 0 or 1 / (1 - dropout), batch after batch.

    Random bits are far cheaper than random floats. At one half each bit is a draw, read off a
    table byte by byte; else sixteen bits are compared with a threshold.
    """
    scale = 1 / (1 - dropout)
    bits = BITS * scale
    size = batch * units
    draws = 64 if dropout == 0.5 else 4  # of a word
    while True:
        words = torch.empty(BULK * size // draws + 1, dtype=torch.int64)
        words.random_(-(2**63), 2**63 - 1, generator=draw)
        if dropout == 0.5:
            table = bits.index_select(0, words.view(torch.uint8).int())
            drawn = table.flatten()[: BULK * size]
        else:
            kept = words.view(torch.int16)[: BULK * size] >= round(dropout * 2**16) - 2**15
            drawn = kept.float().mul_(scale)
        yield from drawn.view(BULK, batch, units)
