"""The scale and the density of a merge, searched on labelled samples: what is tried and taken."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from intarsia.composition.operators.registry import SEARCHED, searched
from intarsia.data import Split
from intarsia.errors import CompositionError, FileError, shortened
from intarsia.specs import Spec, is_number

SCALES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0)
DENSITIES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
Settings = Mapping[str, float]


@dataclass(frozen=True)
class ScaleSearch:
    """The settings that were taken, a scale, a density or both, and the accuracy at all tried."""

    settings: Settings
    tried: Sequence[tuple[Settings, float]]  # in their order
    samples: int

    def to_json(self) -> dict[str, Any]:
        tried = [{**settings, "accuracy": value} for settings, value in self.tried]
        best = dict(zip(map(_key, self.tried), (value for _, value in self.tried), strict=True))
        taken = {**self.settings, "accuracy": best[tuple(self.settings.items())]}
        return {**taken, "tried": tried, "samples": self.samples}

    @classmethod
    def from_json(cls, value: Any) -> "ScaleSearch":
        """What `to_json` gave, or a FileError."""
        try:
            names = [key for key in SEARCHED if key in value]
            tried = [
                ({key: entry[key] for key in names}, entry["accuracy"]) for entry in value["tried"]
            ]
            search = cls({key: value[key] for key in names}, tried, value["samples"])
            sound = bool(names) and search.to_json() == value and type(search.samples) is int
        except (TypeError, LookupError):
            sound = False
        numbers = [n for own, score in tried for n in (*own.values(), score)] if sound else []
        if not sound or not all(map(is_number, numbers)):
            raise FileError(
                f"its header's 'search' is {shortened(value)}, not what a search finds: get the "
                "file again"
            )
        return search


def _key(tried: tuple[Settings, float]) -> tuple[tuple[str, float], ...]:
    return tuple(tried[0].items())


def with_settings(operator: Spec, settings: Settings) -> Spec:
    """The operator with these in the place of what it was to find."""
    return Spec(operator.name, {**operator.arguments, **settings})


def grid(operator: Spec, parts: int) -> list[Settings]:
    """All settings to try for so many parts, density by density."""
    values = {"density": DENSITIES, "scale": candidates(parts)}
    names = searched(operator)
    return [
        dict(zip(names, chosen, strict=True))
        for chosen in product(*(values[name] for name in names))
    ]


def candidates(parts: int, scales: Iterable[float] = SCALES) -> list[float]:
    """The scales to try for so many parts: those given, and 1 / K, which makes a sum a mean."""
    return list(dict.fromkeys([*scales, 1 / parts]))


def search_settings(
    tried: Iterable[Settings], accuracy: Callable[[Settings], float], samples: int
) -> ScaleSearch:
    """The best of the settings by the accuracy on so many samples; of equals the first."""
    scores = [(settings, accuracy(settings)) for settings in tried]
    return ScaleSearch(max(scores, key=lambda one: one[1])[0], scores, samples)


def labelled(samples: Split | None, operator: Spec) -> Split:
    """The samples that have a label, or a CompositionError that names who needs them."""
    if samples is not None:
        known = samples.y >= 0
        if bool(known.any()):
            return Split(samples.x[known], samples.y[known])
    raise CompositionError(
        f"{operator} needs labelled samples to find its {' and '.join(searched(operator))}: "
        "compose(..., samples=data), or --samples in a shell; or give a number"
    )
