"""Loss and score by depth, and over width and depth; and the depth that a PNG ratio suggests."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from intarsia.errors import RecipeError, shortened
from intarsia.sweetspot.networks import DEFAULT_BLOCKS, PatternBank, PatternLayout
from intarsia.sweetspot.pattern_fits import fit
from intarsia.sweetspot.pattern_scores import inflation, png_ratio
from intarsia.sweetspot.pictures import png_encoder
from intarsia.sweetspot.pruning_arms import prune
from intarsia.sweetspot.targets import load
from intarsia.training.job import device_of

OFFSETS = tuple(range(-4, 5))
SHARE = 1404 / 5478  # of the weights: the skull's after the paper's first round of pruning
WEIGHTS = 48  # of each network, whose inflation is measured
FLAT = 1e-2  # deviation of every channel: a picture below it has collapsed to one colour
# PNG bytes over raw ones of the published pictures at 256 pixels, and layers of their genomes.
KNOWN = {"skull": (0.210, 12), "butterfly": (0.226, 16), "apple": (0.260, 33)}


@dataclass(frozen=True)
class DepthRow:
    """Networks of one layout that were fitted in one way.

    losses     of each network
    scores     the median inflation of each; nan where no weight moves its picture
    flat       networks whose picture has one colour, which say nothing about depth
    """

    depth: int
    width: int
    arm: str
    weights: tuple[int, ...]
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    flat: int

    @property
    def loss(self) -> float:
        """The median."""
        return median(self.losses)

    @property
    def score(self) -> float:
        """The median of those that have one."""
        numbers = [score for score in self.scores if score == score]
        return median(numbers) if numbers else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Plain values; a score that is not a number is null."""
        scores = [score if score == score else None for score in self.scores]
        return {**asdict(self), "scores": scores}


@dataclass(frozen=True)
class DepthScan:
    """What was fitted at each depth; `ratio` is that of the target's PNG file at 256 pixels."""

    rows: tuple[DepthRow, ...]
    ratio: float
    encoder: str

    def arms(self) -> list[str]:
        """In the order in which they were made."""
        return list(dict.fromkeys(row.arm for row in self.rows))

    def curves(self, what: str = "loss") -> dict[str, dict[float, tuple[float, float, float]]]:
        """Arm -> depth -> median, smallest and largest of `loss` or `score`."""
        if what not in ("loss", "score"):
            raise RecipeError(f"no curve of {shortened(what)}: use 'loss' or 'score'")
        curves: dict[str, dict[float, tuple[float, float, float]]] = {a: {} for a in self.arms()}
        for row in self.rows:
            numbers = [n for n in (row.losses if what == "loss" else row.scores) if n == n]
            if numbers:
                curves[row.arm][row.depth] = (median(numbers), min(numbers), max(numbers))
        return curves

    def best(self, arm: str = "dense") -> int:
        """The depth of the lowest median loss."""
        rows = [row for row in self.rows if row.arm == arm]
        if not rows:
            raise RecipeError(f"no depth was fitted with arm {shortened(arm)}")
        return min(rows, key=lambda row: row.loss).depth

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = [row.to_json() for row in self.rows]
        return {"ratio": self.ratio, "encoder": self.encoder, "rows": rows}


@dataclass(frozen=True)
class VolumeMap:
    """The share of networks past both thresholds, at every width and depth.

    It is our own quantity, a share of seeds: the paper's "total" is not known.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]  # one row per width
    rows: tuple[DepthRow, ...]
    loss: float
    score: float

    @property
    def volume(self) -> float:
        """The mean share over all cells."""
        return float(np.mean(self.shares))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "widths": list(self.widths),
            "depths": list(self.depths),
            "shares": [list(row) for row in self.shares],
            "loss": self.loss,
            "score": self.score,
            "volume": self.volume,
            "rows": [row.to_json() for row in self.rows],
        }


def depth(
    image: Any,
    *,
    center: int | None = None,
    offsets: Iterable[int] = OFFSETS,
    arms: Sequence[str] = ("dense", "similarity"),
    share: float = SHARE,
    blocks: Any = None,
    weights: int = WEIGHTS,
    out: str | Path | None = None,
    **settings: Any,
) -> DepthScan:
    """Fit networks of several depths to a picture, dense and pruned, and score them.

    Depths are `center` plus the offsets; without a center, that of the target's own layout, or what
    `predicted_depth` says. An arm other than "dense" prunes the dense networks to a `share` of
    their weights and trains them on for as many steps. `settings` are those of `fit`; `weights`
    of each network are tried for its score. With `out` a scan goes on where it was stopped.
    """
    target = load(image)
    layout = getattr(target, "layout", None)
    around = center or (layout.depth if layout else predicted_depth(target))
    like = blocks or (layout.blocks if layout else DEFAULT_BLOCKS)
    if not 0 < share <= 1:
        raise RecipeError(f"share is {share:g}: expected a fraction of the weights, up to 1")
    rows: list[DepthRow] = []
    for layers in _depths(around, offsets):
        shape = PatternLayout(like, layers)
        folder = _folder(out, f"depth-{layers:03}")
        dense = fit(
            target, depth=layers, blocks=shape.blocks, out=_folder(folder, "dense"), **settings
        )
        for arm in arms:
            bank = dense
            if arm != "dense":
                budget = round(share * shape.parameters)
                again = {key: value for key, value in settings.items() if key != "seeds"}
                kept = _folder(folder, arm.partition("(")[0])
                bank = prune(dense, arm, weights=budget, image=target, out=kept, **again)
            rows.append(_row(bank, arm, weights, settings.get("device", "auto")))
    return DepthScan(tuple(rows), png_ratio(target.image(256)), png_encoder())


def volume(
    image: Any,
    *,
    widths: Sequence[int] = (3, 6, 12, 24, 48, 96, 192),
    depths: Sequence[int] = tuple(range(1, 10)),
    loss: float = 1e-3,
    score: float = 1.05,
    weights: int = WEIGHTS,
    out: str | Path | None = None,
    **settings: Any,
) -> VolumeMap:
    """The share of seeds, at every width and depth, whose loss and inflation are low enough."""
    target = load(image)
    layout = getattr(target, "layout", None)
    like = layout.blocks if layout else DEFAULT_BLOCKS
    rows, shares = [], []
    for width in widths:
        cells = []
        for layers in depths:
            shape = PatternLayout.of_width(width, layers, like)
            folder = _folder(out, f"width-{width:03}-depth-{layers:03}")
            bank = fit(target, depth=layers, blocks=shape.blocks, out=folder, **settings)
            row = _row(bank, "dense", weights, settings.get("device", "auto"))
            passed = [a <= loss and b <= score for a, b in zip(row.losses, row.scores, strict=True)]
            cells.append(sum(passed) / len(passed))
            rows.append(row)
        shares.append(tuple(cells))
    return VolumeMap(tuple(widths), tuple(depths), tuple(shares), tuple(rows), loss, score)


def predicted_depth(image: Any) -> int:
    """The depth that lies on the line through the PNG ratios and depths of three evolved pictures.

    A hypothesis of three points: at 64 pixels the ratios of the same pictures are in another order.
    """
    ratios, depths = zip(*KNOWN.values(), strict=True)
    slope, start = np.polyfit(ratios, depths, 1)
    return max(1, round(float(start + slope * png_ratio(load(image).image(256)))))


def _row(bank: PatternBank, arm: str, weights: int, device: str) -> DepthRow:
    assert bank.losses is not None
    layout, place = bank.layout, device_of(device)
    found = [inflation(network, weights=weights, device=place) for network in bank]
    spread = bank.images(32).flatten(1, 2).std(1).amax(1)
    return DepthRow(
        layout.depth,
        layout.width,
        arm,
        tuple(bank.nonzero),
        tuple(bank.losses),
        tuple(each.median for each in found),
        int((spread < FLAT).sum()),
    )


def _depths(center: int, offsets: Iterable[int]) -> list[int]:
    depths = sorted({center + offset for offset in offsets if center + offset >= 1})
    if not depths:
        raise RecipeError(f"no depth is left of {center} with the offsets given: expected some")
    return depths


def _folder(out: str | Path | None, name: str) -> Path | None:
    return None if out is None else Path(out) / name
