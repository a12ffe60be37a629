"""Study `sweetspot`: the claims of a paper on depth, connectivity and similarity pruning.

Do, Shah, Le and Liu (arXiv 2606.19941) say that networks which draw a picture become compositional
in a narrow band of depth and connectivity, and that similarity pruning finds it. Their code is not
published: similarity, threshold, score and depth formula are our readings, which the guide names.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from intarsia.studies.cells import Measured
from intarsia.studies.later_figures import LaterFigures
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.study import Study, register
from intarsia.studies.sweetspot.paper_claims import (
    FEWEST,
    LIKE,
    LOSS,
    PAPER,
    claim_rows,
    count_rows,
    networks_of,
    score_limit,
    shares_of,
)
from intarsia.studies.sweetspot.pattern_cells import (
    ARM,
    DEPTH,
    NAME,
    OPTIMISER,
    REFERENCE,
    SCALES,
    SIGNS,
    VOLUME,
    WIRING,
    cells,
    measure,
)
from intarsia.studies.tables import Entry, Spread, Table, grouped
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import capital

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NETWORKS = ["loss", "inflation", "orthogonality", "distinct maps", "flat", "n"]
NOTES = [
    "loss: mean squared error of RGB, median (smallest to largest); inflation: median over the "
    "networks that are not flat, of the medians over the weights tried; flat: networks that ended "
    "as one colour; n: networks that could be made",
    "inflation depends on the loss, so it is not comparable between rows of different loss; claims "
    "compare it only at similar loss",
]


def tables(done: Sequence[Measured]) -> list[Table]:
    """The claims, then what was measured, part by part and target by target."""
    rows = claim_rows(done)
    result = [_claims(rows)] if rows else []
    for (part,), group in grouped(done, "part").items():
        if part == REFERENCE:
            result.append(_references(group))
            continue
        for (data,), own in grouped(group, "data").items():
            where = f"{data}, {_size(own)}"
            if part == VOLUME:
                result.append(_volumes(where, own, _limit(done, data)))
            else:
                result.append(MADE[part](where, own))
    return result


def _limit(done: Sequence[Measured], data: str) -> float:
    references = grouped(done, "part", "data").get((REFERENCE, data), [])
    return score_limit(references)


def _size(group: Sequence[Measured]) -> str:
    sizes = {f"{cell.settings['recipe']['size']} pixels" for cell in group}
    return " and ".join(sorted(sizes))


def _claims(rows: Sequence[Any]) -> Table:
    entries: list[list[Entry]] = [
        [row.claim, PAPER[row.claim], row.where, row.word, row.n] for row in rows
    ]
    notes = [
        "losses are compared paired by seed, inflation between networks whose losses are at most "
        f"a factor of {LIKE:g} apart; Student's t-test at 95%, with Holm's correction for the "
        f"comparisons of a row; inconclusive with fewer than {FEWEST} pairs",
        "claim 6 compares with dense networks, which were not trained on: the other arms, which "
        "were, show what pruning and training on change in any case",
    ]
    columns = ["claim", "the paper says", "target", "verdict", "n"]
    return Table("The paper's claims", columns, entries, notes)


def _references(group: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    for cell in group:
        result = cell.result
        for who in ("evolved", "twin"):
            if who in result:
                own = result[who]
                maps = f"{own['distinct']} of {own['maps']}"
                ratios = [result["png"][size] for size in ("256", "64")]
                scores = Spread.of(own["scores"])
                line = [result["depth"], own["nonzero"], scores, own["orthogonality"], maps]
                rows.append([cell.settings["data"], who, *line, *ratios])
    columns = ["target", "network", "layers", "weights", "inflation", "orthogonality"]
    columns += ["distinct maps", "PNG ratio, 256 px", "PNG ratio, 64 px"]
    notes = [f"inflation: median over weights, for {SIGNS} sign seeds; PNG ratio: of the picture"]
    return Table("Evolved networks and their twins", columns, rows, notes)


def _arms(where: str, group: Sequence[Measured]) -> Table:
    ordered = sorted(group, key=lambda cell: cell.settings["round"])
    rows = [
        [cell.settings.get("weights") or _weights(cell), cell.settings["arm"], *_networks(cell)]
        for cell in ordered
    ]
    return Table(
        f"{where}: pruning arms at equal numbers of weights",
        ["weights", "arm", *NETWORKS],
        rows,
        NOTES,
    )


def _depths(where: str, group: Sequence[Measured]) -> Table:
    ordered = sorted(group, key=lambda cell: (cell.settings["arm"], cell.settings["offset"]))
    rows = [
        [
            cell.settings["arm"],
            f"{cell.settings['offset']:+d}",
            cell.result.get("depth"),
            _weights(cell),
            *_networks(cell),
        ]
        for cell in ordered
    ]
    columns = ["arm", "offset", "layers", "weights", *NETWORKS]
    return Table(f"{where}: networks by depth", columns, rows, NOTES)


def _wirings(where: str, group: Sequence[Measured]) -> Table:
    rows = [[cell.settings["copies"], _weights(cell), *_networks(cell)] for cell in group]
    title = f"{where}: the evolved wiring, retrained from random weights"
    return Table(title, ["copies", "weights", *NETWORKS], rows, NOTES)


def _optimisers(where: str, group: Sequence[Measured]) -> Table:
    rows = [
        [cell.settings["optimiser"], f"{cell.settings['learning_rate']:g}", *_networks(cell)]
        for cell in group
    ]
    title = f"{where}: dense networks by optimiser"
    return Table(title, ["optimiser", "learning rate", *NETWORKS], rows, NOTES)


def _volumes(where: str, group: Sequence[Measured], limit: float) -> Table:
    shares = shares_of(group, limit)
    losses = {
        (cell.settings["width"], cell.settings["depth"]): cell.result["losses"] for cell in group
    }
    widths, depths = (sorted({key[place] for key in shares}) for place in (0, 1))
    rows: list[list[Entry]] = []
    for width in widths:
        counts = [shares.get((width, depth)) for depth in depths]
        medians = [losses.get((width, depth)) for depth in depths]
        rows.append(
            [width, "within both limits", *(f"{c[0]} of {c[1]}" if c else None for c in counts)]
        )
        rows.append([width, "median loss", *(f"{median(m):.1e}" if m else None for m in medians)])
    notes = [
        f"within both limits: networks with a loss of at most {LOSS:g} and an inflation of at most "
        f"{limit:.3f}, half way between evolved network and twin where both are measured; this is "
        "our own quantity, since the total of the paper's ratio is not known",
    ]
    columns = ["width", "number", *(f"{depth} layers" for depth in depths)]
    return Table(f"{where}: networks by width and depth", columns, rows, notes)


MADE: dict[str, Callable[[str, Sequence[Measured]], Table]] = {
    ARM: _arms,
    DEPTH: _depths,
    WIRING: _wirings,
    OPTIMISER: _optimisers,
}


def _networks(cell: Measured) -> list[Entry]:
    """What all tables of networks have."""
    values = networks_of(cell).values()
    losses = [loss for loss, _ in values]
    scores = [score for _, score in values if score is not None]
    spread = f"{median(losses):.1e} ({min(losses):.1e} to {max(losses):.1e})" if losses else None
    score = f"{median(scores):.3f}" if scores else None
    result = cell.result
    alike = [value for value in result.get("orthogonality", ()) if value is not None]
    maps = f"{median(result['distinct']):g} of {median(result['maps']):g}" if losses else None
    flat = sum(result["flat"])
    return [spread, score, f"{median(alike):.3f}" if alike else None, maps, flat, len(losses)]


def _weights(cell: Measured) -> Entry:
    return round(median(cell.result["nonzero"])) if cell.result["seeds"] else None


def figures(done: Sequence[Measured]) -> "Mapping[str, Figure]":
    """By target inflation against loss, and both by depth; the volume; PNG ratios by size."""
    ways: dict[str, Callable[[], Figure]] = {}
    parts = grouped(done, "part", "data")
    for (part, data), own in parts.items():
        if part in DRAWN and any(_points(cell) for cell in own):
            ways[figure_name(NAME, part, data)] = partial(DRAWN[part], data, own)
        elif part == VOLUME:
            draw = partial(_draw_volume, data, own, _limit(done, data))
            ways[figure_name(NAME, part, data)] = draw
    references = [cell for (part, _), own in parts.items() if part == REFERENCE for cell in own]
    if references:
        ways[figure_name(NAME, "png")] = partial(_draw_png, references)
    return LaterFigures(ways)


def _draw_arms(data: str, group: Sequence[Measured]) -> "Figure":
    from intarsia.plots import score_against_loss

    first = [cell for cell in group if cell.settings["round"] < 2]
    points = {cell.settings["arm"]: _points(cell) for cell in first}
    weights = {cell.settings["weights"] for cell in first if "weights" in cell.settings}
    title = f"{data}, {_size(group)}" + "".join(f", {number} weights" for number in weights)
    return _figure(score_against_loss(points, title=title))


def _points(cell: Measured) -> list[tuple[float, float]]:
    return [(loss, score) for loss, score in networks_of(cell).values() if score is not None]


def _draw_depths(data: str, group: Sequence[Measured]) -> "Figure":
    from intarsia.plots import loss_and_score_by_depth

    losses: dict[str, dict[float, Any]] = {}
    scores: dict[str, dict[float, Any]] = {}
    for cell in sorted(group, key=lambda cell: cell.settings["offset"]):
        arm, values = cell.settings["arm"], networks_of(cell).values()
        for curves, numbers in (
            (losses, [loss for loss, _ in values]),
            (scores, [score for _, score in values if score is not None]),
        ):
            if numbers:
                place = float(cell.result["depth"])
                curves.setdefault(arm, {})[place] = (median(numbers), min(numbers), max(numbers))
    title = f"{data}, {_size(group)}: loss and inflation by depth"
    return loss_and_score_by_depth(losses, scores, title=title)


def _draw_volume(data: str, group: Sequence[Measured], limit: float) -> "Figure":
    from intarsia.plots import volume_map

    shares = shares_of(group, limit)
    widths, depths = (sorted({key[place] for key in shares}) for place in (0, 1))
    cells_ = [
        [p / of if of else float("nan") for p, of in (shares.get((w, d), (0, 0)) for d in depths)]
        for w in widths
    ]
    title = f"{data}, {_size(group)}: fraction within both limits"
    return _figure(volume_map(cells_, widths, depths, title=title))


def _draw_png(references: Sequence[Measured]) -> "Figure":
    from intarsia.plots import png_ratio_by_size

    ratios = {
        cell.settings["data"]: {int(size): ratio for size, ratio in cell.result["png"].items()}
        for cell in references
    }
    return _figure(png_ratio_by_size(ratios, title="PNG ratio by size"))


def _figure(ax: "Axes") -> "Figure":
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


DRAWN: dict[str, Callable[[str, Sequence[Measured]], Any]] = {
    ARM: _draw_arms,
    DEPTH: _draw_depths,
}


def verdict(findings: Findings) -> Verdict:
    """Every claim of the paper on every target: reproduces, does not, or is inconclusive."""
    claims: list[Claim] = []
    lines = []
    for label, own in findings.by_label.items():
        rows = claim_rows(own)
        where = "" if label == findings.label else f"{label}: "
        if rows:
            claims.append(Claim(f"{capital(where + _scale(own))}.", n=_seeds(own)))
        claims += [row.to_claim() for row in rows]
        counts = count_rows(rows)
        parts = [
            f"{f'claim {claim}' if claim.isdecimal() else claim}: "
            + ", ".join(f"{word} in {n}" for word, n in words.items() if n)
            for claim, words in counts.items()
        ]
        if parts:
            size = _size([cell for cell in own if "recipe" in cell.settings])
            lines.append(f"{where}{size}, {_seeds(own)} seeds; {'; '.join(parts)}")
    return Verdict(". ".join(lines) or "no claim can be judged yet", claims)


def _seeds(done: Sequence[Measured]) -> int:
    return max((len(cell.settings.get("seeds", ())) for cell in done), default=0)


def _scale(done: Sequence[Measured]) -> str:
    """`measured at 64 pixels with 8 seeds, 6000 steps for dense networks ...`."""
    fitted = [cell for cell in done if "recipe" in cell.settings]
    dense = {cell.settings["recipe"]["steps"] for cell in fitted if "arm" in cell.settings}
    again = {cell.settings["retraining"] for cell in fitted if "retraining" in cell.settings}
    steps = f", {_any(dense)} steps for dense networks" if dense else ""
    more = f" and {_any(again)} after each pruning" if again else ""
    return f"measured at {_size(fitted)} with {_seeds(done)} seeds{steps}{more}"


def _any(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


register(
    Study(
        NAME,
        "The sweet-spot paper: depth, connectivity and similarity pruning",
        "Networks that draw a picture are fitted by gradient descent, pruned in several ways to "
        "the same number of weights, and made deeper and wider. Do similarity pruning and one "
        "particular depth bring out meaningful parts? The paper's score asks a vision-language "
        "model; ours, inflation, measures how much longer the PNG of the picture gets when one "
        "weight changes it by a fixed error. It is a working score, chosen on the evolved networks "
        "and their twins, and it depends on the loss. Each cell is one target and one way to make "
        "networks for all seeds, which are fitted in one stack. The rules of the verdict (what "
        "counts as similar loss, as equal, as within a limit) were fixed after part of the results "
        "at 24 pixels had been seen: those are exploratory, other sizes and seeds are a test.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="compositional parts in a narrow band of depth and connectivity, found by "
        "similarity pruning",
    )
)
