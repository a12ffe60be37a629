"""Novelty: one number per input that says how little a model can know of it.

Entropy sees an input that no module speaks for. It cannot see one that lies far outside the data,
where networks of linear pieces grow ever surer; the distance can. Which of them to ask is decided
on validation samples against outliers made of them, never against the outliers of a test.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.data import Scaling, Split
from intarsia.data.negatives import NEGATIVES
from intarsia.errors import DataError, nearest
from intarsia.files import plain, stream
from intarsia.measure.abstention import threshold_of
from intarsia.measure.logits import auroc
from intarsia.modules import Module, Predicting, logits_of
from intarsia.modules.classifier import Inputs, network_inputs, raw_inputs, uncertainty

SCORES = ("entropy", "energy", "distance", "entropy+distance", "energy+distance")
OUTLIERS = ("noise(1.0)", "mixed(1.0)", "scaled(1.0)")  # what a score is chosen against
EDGE = 0.95  # of the samples lie within the limit of an entropy or an energy
BEYOND = 1.25  # times the largest distance of a sample is the limit of a distance
SHARP = 8  # power of a distance over its limit: nothing to say inside, all there is outside
LEAST = 1e-3  # limit of an entropy, as a fraction of log C


@dataclass(frozen=True)
class Novelty:
    """A fitted score; above `threshold` an input counts as unknown.

    The parts of a score: `entropy` of softmax(z / temperature) as a fraction of log C; `energy`,
    minus the logarithm of sum(exp(z / temperature)) of centred logits; `distance`, how many
    standard deviations the logarithm of the scaled input's norm lies from the mean. Joint scores
    take the larger of their parts over their limits; a distance enters by a high power, so that
    among inputs as large as samples are the other part decides.
    """

    score: str
    threshold: float
    temperature: float
    centre: float  # of log norms
    spread: float
    limits: Mapping[str, float]
    auroc: Mapping[str, float]  # of every score, mean over the made-up outliers

    def scores(self, model: nn.Module | Module, x: Inputs) -> Tensor:
        """One float64 per input; larger is stranger."""
        network = model.to_module() if isinstance(model, Module) else model
        rows = _encoded(model, x)
        return self.scores_of(logits_of(network, rows), self.distances(model, rows))

    def scores_of(self, logits: Tensor, distances: Tensor) -> Tensor:
        """As `scores`, of logits and distances that are there already."""
        return _joint(self.score, _parts(logits, distances, self.temperature), self.limits)

    def distances(self, model: nn.Module | Module, x: Inputs) -> Tensor:
        return (_log_norms(model, _encoded(model, x)) - self.centre).abs() / self.spread

    def unknown(self, model: nn.Module | Module, x: Inputs) -> Tensor:
        """True where an answer is to be withheld."""
        return self.scores(model, x) > self.threshold

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self), "novelty")

    @classmethod
    def from_json(cls, values: Any) -> "Novelty":
        """What `to_json` gave, checked."""
        numbers = ("threshold", "temperature", "centre", "spread")
        fits = (
            isinstance(values, Mapping)
            and set(values) == {"score", "limits", "auroc", *numbers}
            and values["score"] in SCORES
            and all(_is_number(values[key]) for key in numbers)
            and all(isinstance(values[k], Mapping) for k in ("limits", "auroc"))
            and all(_is_number(v) for v in values["limits"].values())
            and set(values["limits"]) == {"entropy", "energy", "distance"}
        )
        if not fits or not values["temperature"] > 0 or not values["spread"] > 0:
            raise DataError("the score of novelty is damaged: fit it again on validation samples")
        return cls(**values)

    def __str__(self) -> str:
        return f"{self.score} above {self.threshold:.4g} counts as unknown"


def novelty(
    model: nn.Module | Module,
    samples: Split | Inputs,
    score: str = "auto",
    *,
    answered: float = 0.95,
    temperature: float | None = None,
) -> Novelty:
    """Fit a score on validation samples so that `answered` of them count as known.

    "auto" takes the score that best separates these samples from outliers made of them: noise, rows
    with features of several samples, and samples scaled up.
    """
    if score != "auto" and score not in SCORES:
        raise DataError(f"unknown score {score!r}: {nearest(score, ('auto', *SCORES))}")
    rows = _encoded(model, samples.x if isinstance(samples, Split) else samples)
    if not len(rows):
        raise DataError("there are no samples to fit a score on: give validation samples")
    network = model.to_module() if isinstance(model, Module) else model
    if temperature is None:
        temperature = network.temperature if isinstance(network, Predicting) else 1.0
    norms = _log_norms(model, rows)
    centre = float(norms.mean())
    spread = max(float(norms.std(unbiased=False)), 1e-6)

    def parts(x: Tensor, norms: Tensor) -> dict[str, Tensor]:
        return _parts(logits_of(network, x), (norms - centre).abs() / spread, temperature)

    known = parts(rows, norms)
    limits = {name: _limit(name, known[name]) for name in known}
    measured: dict[str, float] = {}
    if score == "auto":
        made = (_made(text, rows) for text in OUTLIERS)
        outliers = [parts(x, _log_norms(model, x)) for x in made]
        measured = {name: _separation(name, known, outliers, limits) for name in SCORES}
        score = max(SCORES, key=lambda name: (round(measured[name], 3), -SCORES.index(name)))
    threshold = _threshold(_joint(score, known, limits), answered)
    return Novelty(score, threshold, temperature, centre, spread, limits, measured)


def _made(text: str, rows: Tensor) -> Tensor:
    """Outliers of one source, made of the raw rows."""
    source = NEGATIVES.spec(text)
    generator = torch.Generator().manual_seed(stream("novelty", source))
    floats = rows if rows.is_floating_point() else rows.float()
    made: Tensor = NEGATIVES.call(source, samples=floats, generator=generator)
    return made


def _separation(
    score: str,
    known: Mapping[str, Tensor],
    outliers: Sequence[Mapping[str, Tensor]],
    limits: Mapping[str, float],
) -> float:
    """AUROC of a score, mean over the kinds of outliers."""
    own = _joint(score, known, limits)
    each = [auroc(own, _joint(score, parts, limits)) for parts in outliers]
    return sum(each) / len(each)


def _joint(score: str, parts: Mapping[str, Tensor], limits: Mapping[str, float]) -> Tensor:
    """The score from its parts: one as it is, of several the largest over its limit."""
    names = score.split("+")
    if len(names) == 1:
        return parts[names[0]]
    ratios = [(parts[n] / limits[n]) ** (SHARP if n == "distance" else 1) for n in names]
    return torch.stack(ratios).amax(0)


def _parts(logits: Tensor, distances: Tensor, temperature: float) -> dict[str, Tensor]:
    z = logits.double() / temperature
    centred = z - z.mean(1, keepdim=True)
    # 0 where all classes are alike, and lower the surer; the offset keeps a ratio of it meaningful
    energy = (math.log(z.shape[1]) - torch.logsumexp(centred, 1)).exp()
    return {
        "entropy": uncertainty(logits, temperature),
        "energy": energy,
        "distance": distances.double(),
    }


def _limit(name: str, values: Tensor) -> float:
    if name == "distance":
        return BEYOND * max(float(values.max()), 1e-12)
    return max(float(values.quantile(EDGE)), LEAST if name == "entropy" else 1e-12)


def _threshold(scores: Tensor, answered: float) -> float:
    """Halfway between the last score that is answered and the next, or just above the last."""
    largest = float(scores.max())
    scale = largest if largest > 0 else 1.0
    return threshold_of(scores / scale, answered) * scale


def _encoded(model: nn.Module | Module, x: Inputs) -> Tensor:
    """Inputs on the CPU; the features of raw ones, where the model has an encoder."""
    encoder = model.encoder if isinstance(model, Module | Predicting) else None
    rows = raw_inputs(x) if encoder is None else network_inputs(x, (encoder.features,), encoder)
    return rows.cpu()


def _log_norms(model: nn.Module | Module, x: Inputs) -> Tensor:
    """Logarithm of the norm of each input as the network reads it."""
    rows = raw_inputs(x).float()
    reader: Any = (getattr(model, "parts", None) or [model])[0]  # all parts read alike
    scaling = getattr(reader, "scaling", None)
    if isinstance(scaling, Scaling):
        shape = getattr(getattr(reader, "architecture", reader), "shape", rows.shape[1:])
        rows = scaling(rows.reshape(len(rows), *shape))
    norms = torch.linalg.vector_norm(rows.reshape(len(rows), -1).double(), dim=1)
    return norms.clamp_min(1e-6).log()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
