"""One scale and one offset per part, fitted on held-out samples so that evidence is comparable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from intarsia.composition.operators.arithmetic import off_the_sum
from intarsia.errors import CompositionError
from intarsia.models.axes import gives_output
from intarsia.modules import Module, logits_of

Join = Callable[[Sequence[Tensor]], Tensor]  # one N x C of logits per part -> N x C
STEPS = 30
PULL = 0.1  # the best of 0.001 to 1 on MNIST and Fashion-MNIST validation samples
LOUDEST = 7.0  # of log scales: beyond e^7 samples of few classes would drive a scale without end


@dataclass(frozen=True)
class Calibration:
    """z = join(scale_i z_i) + offset_i on the rewarded classes of part i.

    `scores` compares it with doing without, each half of the samples by the fit on the other.
    """

    scales: Mapping[str, float]
    offsets: Mapping[str, float]
    scores: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"scales": dict(self.scales), "offsets": dict(self.offsets), **self.scores}


def calibrate(
    logits: Sequence[Tensor], labels: Tensor, parts: Sequence[Module], join: Join
) -> Calibration:
    """Fit scales and offsets by cross-entropy at the parts' temperature; unlabelled rows rest."""
    temperature, owned = parts[0].temperature, _owned(parts)
    known = labels >= 0
    z, y = [part[known].double() for part in logits], labels[known]
    if len(y) < 4 * len(parts):
        raise CompositionError(
            f"{len(y)} labelled samples are too few to calibrate {len(parts)} modules: give at "
            f"least {4 * len(parts)}, as in compose(..., samples=data)"
        )

    def fitted(rows: Tensor) -> tuple[Tensor, Tensor]:
        return _fit([part[rows] for part in z], y[rows], owned, temperature, join)

    scales, offsets = fitted(torch.arange(len(y)))
    names = [part.name for part in parts]
    return Calibration(
        dict(zip(names, scales.tolist(), strict=True)),
        dict(zip(names, offsets.tolist(), strict=True)),
        _compared(z, y, owned, temperature, join, fitted),
    )


def scaled(part: Module, scale: float) -> Module:
    """The module with its logits multiplied: all that gives the output axis is."""
    part = part.without_base()
    wiring = part.architecture.wiring(part.factory)
    state = {
        name: tensor * scale if gives_output(wiring[name]) else tensor
        for name, tensor in part.state.items()
    }
    return replace(part, state=state)


def check_scaled(
    joined: Module, parts: Sequence[Module], calibration: Calibration, inputs: Tensor
) -> None:
    """A custom forward may do to the output what does not scale, such as normalise it."""
    each = [calibration.scales[p.name] * logits_of(p.to_module(), inputs) for p in parts]
    off = off_the_sum(logits_of(joined.to_module(), inputs), each)
    if off is not None:
        raise CompositionError(
            f"the logits of this network are {off:.3g} off those that were calibrated, so its "
            'forward does more to its outputs than adding up weighted units: join by "logits"'
        )


def scales_of(calibration: Calibration, parts: Sequence[Module]) -> Tensor:
    """What the logits of each part are multiplied by."""
    return torch.tensor([calibration.scales[part.name] for part in parts])


def offset_of(calibration: Calibration, parts: Sequence[Module]) -> Tensor:
    """What is added to the logits of each class."""
    offsets = torch.tensor([calibration.offsets[part.name] for part in parts], dtype=torch.float64)
    return (offsets @ _owned(parts)).float()


def _owned(parts: Sequence[Module]) -> Tensor:
    """Parts x C: 1 where a part is rewarded for the class."""
    rows = [[float(c in part.rewarded) for c in part.catalogue] for part in parts]
    return torch.tensor(rows, dtype=torch.float64)


def _apply(z: Sequence[Tensor], scales: Tensor, offsets: Tensor, owned: Tensor, join: Join) -> Any:
    return join([s * part for s, part in zip(scales, z, strict=True)]) + offsets @ owned


def _fit(
    z: Sequence[Tensor], y: Tensor, owned: Tensor, temperature: float, join: Join
) -> tuple[Tensor, Tensor]:
    """Cross-entropy, with a pull towards parts that are alike.

    How sure the composition is, a factor common to all scales and offsets, is free: pulled as well,
    it would be reached by way of the others.
    """
    raw = torch.zeros(2, len(z), dtype=torch.float64, requires_grad=True)  # log scale, offset
    shared = torch.zeros((), dtype=torch.float64, requires_grad=True)  # log of the factor
    search = torch.optim.LBFGS([raw, shared], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        answer = _apply(z, *_values(raw, shared), owned, join)
        loss = cross_entropy(answer / temperature, y) + PULL * raw.square().mean()
        loss.backward()
        return loss

    with torch.enable_grad():
        search.step(closure)
    return _values(raw.detach(), shared.detach())


def _values(raw: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
    scales = (raw[0] + shared).clamp(-LOUDEST, LOUDEST).exp()
    return scales, raw[1] * shared.clamp(-LOUDEST, LOUDEST).exp()


def _compared(
    z: Sequence[Tensor],
    y: Tensor,
    owned: Tensor,
    temperature: float,
    join: Join,
    fitted: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> dict[str, Any]:
    by_class = torch.argsort(y, stable=True)  # so that each half has half of every class
    halves = (by_class[0::2], by_class[1::2])
    plain, better = torch.empty(len(y), owned.shape[1]), torch.empty(len(y), owned.shape[1])
    for mine, other in (halves, halves[::-1]):
        scales, offsets = fitted(other)
        part = [rows[mine] for rows in z]
        plain[mine] = join(part).float()
        better[mine] = _apply(part, scales, offsets, owned, join).float()
    scores: dict[str, Any] = {"samples": len(y)}
    for key, answer in (("without", plain), ("with", better)):
        scores[f"accuracy_{key}"] = (answer.argmax(1) == y).double().mean().item()
        scores[f"loss_{key}"] = cross_entropy(answer / temperature, y).item()
    return scores
