"""The scale of a merge, searched on labelled samples: what is tried, and which one is taken."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from intarsia.composition.operators.registry import AUTO
from intarsia.data import Split
from intarsia.errors import CompositionError, FileError, shortened
from intarsia.specs import Spec, is_number

SCALES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0)
SCALE = "scale"
Key = TypeVar("Key")


@dataclass(frozen=True)
class ScaleSearch:
    """The scale that was taken, and the accuracy at each that was tried, in their order."""

    scale: float
    tried: Mapping[float, float]
    samples: int

    def to_json(self) -> dict[str, Any]:
        tried = [{"scale": scale, "accuracy": value} for scale, value in self.tried.items()]
        best = self.tried[self.scale]
        return {"scale": self.scale, "accuracy": best, "tried": tried, "samples": self.samples}

    @classmethod
    def from_json(cls, value: Any) -> "ScaleSearch":
        """What `to_json` gave, or a FileError."""
        try:
            tried = {entry["scale"]: entry["accuracy"] for entry in value["tried"]}
            search = cls(value["scale"], tried, value["samples"])
            sound = search.to_json() == value and type(search.samples) is int
        except (TypeError, LookupError):
            sound = False
        if not sound or not all(map(is_number, (*tried, *tried.values()))):
            raise FileError(
                f"its header's 'search' is {shortened(value)}, not what a search finds: get the "
                "file again"
            )
        return search


def asks_for_scale(operator: Spec) -> bool:
    """Whether its scale is to be found."""
    return operator.arguments.get(SCALE) == AUTO


def with_scale(operator: Spec, scale: float) -> Spec:
    """The operator at this scale."""
    return Spec(operator.name, {**operator.arguments, SCALE: scale})


def candidates(parts: int, scales: Iterable[float] = SCALES) -> list[float]:
    """The scales to try for so many parts: those given, and 1 / K, which makes a sum a mean."""
    return list(dict.fromkeys([*scales, 1 / parts]))


def best_of(tried: Mapping[Key, float]) -> Key:
    """What has the highest accuracy; of equals the first that was tried."""
    return max(tried, key=tried.__getitem__)


def search_scale(
    scales: Iterable[float], accuracy: Callable[[float], float], samples: int
) -> ScaleSearch:
    """The best of the scales by the accuracy on so many samples."""
    tried = {scale: accuracy(scale) for scale in scales}
    return ScaleSearch(best_of(tried), tried, samples)


def labelled(samples: Split | None, operator: Spec) -> Split:
    """The samples that have a label, or a CompositionError that names who needs them."""
    if samples is not None:
        known = samples.y >= 0
        if bool(known.any()):
            return Split(samples.x[known], samples.y[known])
    raise CompositionError(
        f"{operator} needs labelled samples to find its scale: compose(..., samples=data), or "
        "--samples in a shell; or give a number"
    )
