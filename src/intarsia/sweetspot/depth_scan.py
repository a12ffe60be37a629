"""Loss and score by depth, and over width and depth; and the depth that a PNG ratio suggests."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from intarsia.errors import RecipeError, shortened
from intarsia.files import digest_of, plain
from intarsia.specs import Spec, is_number
from intarsia.sweetspot.networks import (
    DEFAULT_BLOCKS,
    PatternBank,
    PatternLayout,
    PatternNetwork,
)
from intarsia.sweetspot.pattern_fits import fit
from intarsia.sweetspot.pattern_scores import inflation, png_ratio
from intarsia.sweetspot.pictures import png_encoder
from intarsia.sweetspot.pruning_arms import ARMS, prune
from intarsia.sweetspot.targets import Target, available, load, published_picture
from intarsia.training.job import device_of

OFFSETS = tuple(range(-4, 5))
SHARE = 1404 / 5478  # of the weights: the skull's after the paper's first round of pruning
WEIGHTS = 48  # of each network, whose inflation is measured
FLAT = 1e-2  # deviation of every channel: a picture below it has collapsed to one colour
# Layers of the evolved networks, and PNG bytes over raw ones at 256 pixels: of what the networks
# draw, and of the pictures published with them. By pillow 12.3.0 with zlib 1.2.13; where the
# networks are on this machine, its own encoder measures them.
KNOWN = {
    "skull": (12, 0.1909, 0.2096),
    "butterfly": (16, 0.2170, 0.2262),
    "apple": (33, 0.2423, 0.2598),
}


@dataclass(frozen=True)
class DepthRow:
    """Networks of one layout that were fitted in one way.

    losses     of each network; nan where it diverged
    scores     the median inflation of each; nan where no weight moves its picture, or it diverged
    flat       networks whose picture has one colour, which say nothing about depth
    steps      of training in all, before and after pruning
    """

    depth: int
    width: int
    arm: str
    weights: tuple[int, ...]
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    flat: int
    steps: int

    @property
    def loss(self) -> float:
        """The median of networks that did not diverge; infinity where all did."""
        return median(self.finite_losses) if self.finite_losses else float("inf")

    @property
    def finite_losses(self) -> list[float]:
        """Of networks that did not diverge."""
        return [loss for loss in self.losses if loss == loss]

    @property
    def diverged(self) -> int:
        """Networks that did."""
        return len(self.losses) - len(self.finite_losses)

    @property
    def score(self) -> float:
        """The median of those that have one."""
        numbers = [score for score in self.scores if score == score]
        return median(numbers) if numbers else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Plain values; a loss or a score that is not a number is null."""
        values: dict[str, Any] = plain(asdict(self))
        return values


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
        """The depth of the lowest median loss, where one that diverged counts as infinity."""
        rows = [row for row in self.rows if row.arm == arm]
        if not rows:
            raise RecipeError(f"no depth was fitted with arm {shortened(arm)}")
        return min(rows, key=lambda row: (_with_diverged(row.losses), row.loss)).depth

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
    their weights and trains them on for as many steps; beside such an arm the dense networks are
    trained on for as many, too, so that all rows have the same number. `settings` are those of
    `fit`; `weights` of each network are tried for its score. With `out` a scan goes on where it was
    stopped.
    """
    specs = [_arm(arm) for arm in arms]
    longer = any(spec is not None for spec in specs)
    target = load(image)
    layout = getattr(target, "layout", None)
    if not (is_number(share) and 0 < share <= 1):
        raise RecipeError(
            f"share is {shortened(share)}: expected a fraction of the weights, up to 1"
        )
    like = blocks or (layout.blocks if layout else DEFAULT_BLOCKS)
    rows: list[DepthRow] = []
    for layers in depths_around(target, center, offsets):
        shape = PatternLayout(like, layers)
        folder = _folder(out, f"depth-{layers:03}")
        dense = fit(
            target, depth=layers, blocks=shape.blocks, out=_folder(folder, "dense"), **settings
        )
        again = {key: value for key, value in settings.items() if key != "seeds"}
        for arm, spec in zip(arms, specs, strict=True):
            bank, steps = dense, dense.report["steps"]
            if longer:
                own = _folder(folder, "dense-on" if spec is None else _folder_name(spec))
                again |= {"out": own, "learning_rate": dense.report["learning_rates"]}
                if spec is None:
                    bank = fit(target, start=dense, **again)
                else:
                    budget = round(share * shape.parameters)
                    bank = prune(dense, str(spec), weights=budget, image=target, **again)
                steps += bank.report["steps"]
            rows.append(_row(bank, arm, weights, settings.get("device", "auto"), steps))
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
    for name, value in (("loss", loss), ("score", score)):
        if not is_number(value) and value != inf:
            raise RecipeError(f"the threshold {name} is {shortened(value)}: expected a number")
    if len(widths) == 0 or len(depths) == 0:
        raise RecipeError("a map over width and depth needs at least one of each")
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
            steps = bank.report["steps"]
            row = _row(bank, "dense", weights, settings.get("device", "auto"), steps)
            passed = [a <= loss and b <= score for a, b in zip(row.losses, row.scores, strict=True)]
            cells.append(sum(passed) / len(passed))
            rows.append(row)
        shares.append(tuple(cells))
    return VolumeMap(tuple(widths), tuple(depths), tuple(shares), tuple(rows), loss, score)


def depths_around(target: Target, center: int | None, offsets: Iterable[int]) -> list[int]:
    """Numbers of layers: the center, or the target's own, or what is predicted, with offsets."""
    if center is None:
        layout = getattr(target, "layout", None)
        center = layout.depth if layout else predicted_depth(target)
    if type(center) is not int or center < 1:
        raise RecipeError(
            f"center is {shortened(center)}: expected a whole number of hidden layers from 1"
        )
    given = list(offsets)
    if not all(type(offset) is int for offset in given):
        raise RecipeError(f"offsets are {shortened(given)}: expected whole numbers of layers")
    depths = sorted({center + offset for offset in given if center + offset >= 1})
    if not depths:
        raise RecipeError(f"no depth is left of {center} with the offsets given: expected some")
    return depths


def predicted_depth(image: Any) -> int:
    """The depth on the line of least squares through PNG ratios and depths of three pictures.

    What a network draws is compared with what the evolved networks draw, any other picture with the
    pictures that were published. A hypothesis of three points: at 64 pixels the ratios of the same
    pictures are in another order, and a ratio outside of the three is refused.
    """
    target = load(image)
    drawn = isinstance(target, PatternNetwork)
    ratio, ratios = png_ratio(target.image(256)), _known_ratios(drawn)
    if not min(ratios) <= ratio <= max(ratios):
        raise RecipeError(
            f"{target.name or 'the picture'} has a PNG ratio of {ratio:.3f} at 256 pixels, and the "
            f"pictures whose depth is known {min(ratios):.3f} to {max(ratios):.3f}: no depth can "
            "be predicted; say around which depth to look, as in center=12"
        )
    slope, start = np.polyfit(ratios, [layers for layers, _, _ in KNOWN.values()], 1)
    return max(1, round(float(start + slope * ratio)))


def _known_ratios(drawn: bool) -> list[float]:
    """PNG ratios of the three, by this machine's encoder where it has all of them."""
    if not set(KNOWN) <= set(available()):
        return [own if drawn else published for _, own, published in KNOWN.values()]
    read = (load(name).image(256) if drawn else published_picture(name) for name in KNOWN)
    return [png_ratio(picture) for picture in read]


def _arm(text: str) -> Spec | None:
    """The spec of an arm that a scan can take; None for "dense"."""
    if text == "dense":
        return None
    spec = ARMS.spec(text)
    if _needs_more(spec.name):
        known = ", ".join(n for n in ARMS if not _needs_more(n))
        raise RecipeError(
            f"arm {spec.name!r} needs more than a scan over depth gives it, an origin, a wiring or "
            f"a budget of its own: use dense or {known}"
        )
    return spec


def _folder_name(spec: Spec) -> str:
    return f"{spec.name}-{digest_of(str(spec))[:12]}"


def _needs_more(name: str) -> bool:
    entry = ARMS[name]
    return bool(entry.rewinds or entry.needs_wiring or entry.own_budget)


def _with_diverged(losses: Sequence[float]) -> float:
    """The median, where a network that diverged has an infinite loss."""
    return median(loss if loss == loss else float("inf") for loss in losses)


def _row(bank: PatternBank, arm: str, weights: int, device: str, steps: int) -> DepthRow:
    assert bank.losses is not None
    layout, place = bank.layout, device_of(device)
    pairs = zip(bank, bank.losses, strict=True)
    scores = [
        inflation(network, weights=weights, device=place).median if loss == loss else loss
        for network, loss in pairs
    ]
    spread = bank.images(32).flatten(1, 2).std(1).amax(1)
    return DepthRow(
        layout.depth,
        layout.width,
        arm,
        tuple(bank.nonzero),
        tuple(bank.losses),
        tuple(scores),
        int((spread < FLAT).sum()),
        steps,
    )


def _folder(out: str | Path | None, name: str) -> Path | None:
    return None if out is None else Path(out) / name
