"""Tables and figures of the study `lens`: an arm's are entries of TABLES and FIGURES."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.lens.classification import (
    ALL,
    CHANCE,
    DUMMY,
    FIRST,
    LAST,
    MIDDLE,
    PERMUTED,
    SPREAD,
    THREE,
)
from intarsia.studies.cells import Measured
from intarsia.studies.lens.asked_arms import CHOSEN, KIND, LENGTH, MARGIN
from intarsia.studies.lens.lens_cells import CORRECTNESS, FORMAT, TASK, TEXT_KIND
from intarsia.studies.tables import Entry, Spread, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (ALL, THREE, FIRST, MIDDLE, LAST, CHANCE, SPREAD)
ABOUT = {
    TEXT_KIND: "{texts} texts of each of {kinds} kinds, {tokens} tokens each; {neighbours} "
    "neighbours, {folds} folds; a story and its scramble share a fold",
    TASK: "{prompts:,} prompts in {groups} groups: {stories} stories and their scrambles under two "
    "questions per task, before and after the text; {task_tokens} tokens generated at "
    "temperature {temperature:g}; {neighbours} neighbours, {folds} folds; a story and its scramble "
    "share a fold",
    FORMAT: "{prompts:,} prompts in {groups} groups: {topics} topics in every format, "
    "{format_tokens} tokens generated at temperature {temperature:g}, {format_windows} windows; "
    "{neighbours} neighbours, {folds} folds; the texts of a topic share a fold",
    CORRECTNESS: "{questions} questions with four answers, which the model is not shown; its "
    "answer is the one whose log-probability the question raises most; profiles are those of the "
    "last position of the question; {neighbours} neighbours, {folds} folds",
}


def of_arm(done: Sequence[Measured], arm: str) -> list[Measured]:
    """The cells of an arm."""
    return [cell for cell in done if cell.settings["arm"] == arm]


def score(done: Sequence[Measured], name: str) -> Spread:
    """The area under the curve of some features, over seeds; its mean over folds counts."""
    return Spread.of(cell.result["scores"].get(name, [None])[0] for cell in done)


def single_layers(cell: Measured) -> dict[str, float]:
    """Those of every layer alone."""
    scores = cell.result["scores"]
    return {name: own[0] for name, own in scores.items() if name.startswith("layer ")}


def tables(done: Sequence[Measured]) -> list[Table]:
    """Those of every arm."""
    return [table for arm, own in TABLES.items() if (c := of_arm(done, arm)) for table in own(c)]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Those of every arm."""
    result: dict[str, Figure] = {}
    for arm, own in FIGURES.items():
        if cells := of_arm(done, arm):
            result |= own(cells)
    return result


def _text_kind_tables(done: Sequence[Measured]) -> list[Table]:
    result = [_features(done), _alphas(done), _profiles(done)]
    return result + [_subsets(done)] * bool(done[0].result["subsets"])


def _about(done: Sequence[Measured]) -> str:
    """What the cells of an arm asked, and how that was told from profiles."""
    asked = done[0].settings
    kinds = {"kinds": len(asked.get("kinds", ()))}
    return ABOUT[asked["arm"]].format_map({**done[0].result, **asked, **kinds})


def _features(done: Sequence[Measured], title: str = "Kind of text: AUC by features") -> Table:
    extra = [name for name in done[0].result["scores"] if name not in (*SHOWN, DUMMY, PERMUTED)]
    extra.sort(key=_depth)  # an archive has them by name: layer 10 before layer 2
    rows: list[list[Entry]] = []
    for name in (*SHOWN, *extra, DUMMY, PERMUTED):
        own = [cell.result["scores"][name] for cell in done if name in cell.result["scores"]]
        folds = Spread.of(sd for _, sd in own).mean
        rows.append([name, *(f"{cell[0]:.1f}" for cell in own), score(done, name), f"{folds:.1f}"])
    seeds = [f"seed {cell.settings['seed']}" for cell in done]
    notes = [
        f"area under the ROC curve (AUC), one class against the others, in percent; {_about(done)}",
        "seeds determine texts, folds and permutation; sd over folds is the mean over seeds",
    ]
    columns = ["features", *seeds, "mean over seeds", "sd over folds"]
    return Table(title, columns, rows, notes)


def _depth(name: str) -> float:
    """`layer 3` -> 3; what is no layer comes last."""
    number = name.removeprefix("layer ")
    return int(number) if number.isdigit() else math.inf


def _alphas(
    done: Sequence[Measured], title: str = "Kind of text: all layers, by Renyi order of the entropy"
) -> Table:
    orders = list(done[0].result["alphas"])
    rows: list[list[Entry]] = []
    for alpha in orders:
        own = [cell.result["alphas"][alpha] for cell in done if alpha in cell.result["alphas"]]
        folds = Spread.of(sd for _, sd in own).mean
        rows.append([alpha, Spread.of(mean for mean, _ in own), f"{folds:.1f}"])
    return Table(title, ["alpha", "AUC", "sd over folds"], rows)


def _profiles(done: Sequence[Measured]) -> Table:
    first = done[0].result["profiles"]
    layers = len(next(iter(first.values()))[0])
    rows: list[list[Entry]] = []
    for kind in first:
        own = [cell.result["profiles"][kind][0] for cell in done]
        rows.append([kind, *(Spread.of(p[layer] for p in own) for layer in range(layers))])
    grows = [cell.result["expansion"] for cell in done]
    texts = [f"{np.mean([g[layer] for g in grows]):.0%}" for layer in range(layers - 1)]
    rows.append(["texts whose entropy rises here", None, *texts])
    notes = ["entropy in nats, averaged over positions and texts; spread over seeds"]
    columns = ["kind", *(f"layer {layer + 1}" for layer in range(layers))]
    return Table("Entropy by layer and kind", columns, rows, notes)


def _subsets(done: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    for subset in done[0].result["subsets"]:
        own = [cell.result["subsets"][subset] for cell in done]
        spreads = [Spread.of(part[name][0] for part in own) for name in (ALL, LAST, CHANCE)]
        rows.append([subset, *spreads])
    columns = ["kinds", ALL, LAST, CHANCE]
    return Table("Similar kinds of text: AUC", columns, rows)


PRINTED_TASK = {
    "Gemma-2, 2.1B": (97.66, 0.47),
    "Gemma-2, 8.9B": (98.38, 0.50),
    "Llama-3.2, 1B": (94.94, 0.79),
    "Llama-3.2, 3B": (94.77, 0.93),
    "Llama-3, 8B": (96.10, 0.67),
    "Phi-3": (97.07, 0.87),
}
PRINTED_LAYERS = {FIRST: 68.34, MIDDLE: 78.83, LAST: 76.78, THREE: 86.13, ALL: 90.49}
PRINTED_FORMAT = {"Gemma": {"0.5": 97.3, "1.0": 98.7, "5.0": 98.4},
                  "Llama": {"0.5": 97.8, "1.0": 97.8, "5.0": 96.6}}  # fmt: skip
PRINTED_CORRECTNESS = {
    "base": ((73.61, 50.89), (71.88, 56.10)),
    "humble": ((69.90, 58.51), (72.78, 54.71)),
    "instruct": ((67.23, 60.62), (68.36, 56.38)),
}  # AUC and accuracy of Llama, of Gemma
PRINTED_NOTE = "paper: Caso et al. (arXiv 2502.16570), for larger models and other prompts"
EVERY = 5  # layers of a deep model's table


def _task_tables(done: Sequence[Measured]) -> list[Table]:
    rows: list[list[Entry]] = [
        [name, f"{mean:.2f}", f"{sd:.2f}"] for name, (mean, sd) in PRINTED_TASK.items()
    ]
    own = score(done, ALL)
    folds = Spread.of(cell.result["scores"][ALL][1] for cell in done).mean
    rows.insert(0, [f"{done[0].result['model']} (ours)", own, f"{folds:.2f}"])
    layers: list[list[Entry]] = [
        [name, score(done, name), f"{printed:.2f}"] for name, printed in PRINTED_LAYERS.items()
    ]
    return [
        _features(done, "Task of the prompt: AUC by features"),
        _wordings(done, "Task of the prompt: AUC on wordings not seen in training"),
        _alphas(done, "Task of the prompt: all layers, by Renyi order"),
        Table("Task of the prompt: comparison with larger models",
              ["model", "AUC", "sd over folds"], rows, [PRINTED_NOTE]),
        Table("Task of the prompt: AUC by layers used", ["features", "ours", "paper"], layers,
              [f"{PRINTED_NOTE}; it does not state the model of these numbers"]),
        _deep_profiles(done, "Entropy by layer and task"),
    ]  # fmt: skip


def _format_tables(done: Sequence[Measured]) -> list[Table]:
    orders = _alphas(done, "Requested format: all layers, by Renyi order")
    rows = [
        [*row, *(_printed(own.get(str(row[0]))) for own in PRINTED_FORMAT.values())]
        for row in orders.rows
    ]
    columns = [*orders.columns, *(f"paper's {name}" for name in PRINTED_FORMAT)]
    return [
        _features(done, "Requested format: AUC by features"),
        _wordings(done, "Requested format: AUC on wordings not seen in training"),
        Table(orders.title, columns, rows, [f"{PRINTED_NOTE}, 256 tokens"]),
        _deep_profiles(done, "Entropy by layer and format"),
    ]


def _correctness_tables(done: Sequence[Measured]) -> list[Table]:
    notes = [f"area under the ROC curve (AUC), right against wrong, in percent; {_about(done)}"]
    return [
        _right_or_wrong(
            done, "scores", "Correctness of the answer: AUC by prompt", [*notes, PRINTED_NOTE],
        ),
        _right_or_wrong(
            done, "within_kinds", "Correctness of the answer: AUC within kinds of questions",
            [*notes, "the mean over questions of the same kind is subtracted from every number "
             "first, so that it does not reveal the kind"],
        ),
        _right_by_kind(done),
    ]  # fmt: skip


def _right_or_wrong(done: Sequence[Measured], key: str, title: str, notes: Sequence[str]) -> Table:
    names = [ALL, THREE, LAST, CHANCE, SPREAD, CHOSEN, MARGIN, LENGTH, KIND, PERMUTED]
    names = [name for name in names if key == "scores" or name != KIND]
    rows: list[list[Entry]] = []
    for instruction in done[0].settings["instructions"]:
        own = [cell.result["instructions"][instruction] for cell in done]
        known = [part[key] for part in own if key in part]
        spreads = [Spread.of(scores[name][0] for scores in known) for name in names]
        folds = _printed(Spread.of(scores[ALL][1] for scores in known).mean if known else None)
        row: list[Entry] = [instruction, spreads[0], folds, *spreads[1:]]
        if key == "scores":
            row.insert(1, Spread.of(part["accuracy"] for part in own))
            row += [f"{auc:.2f} ({right:.2f})" for auc, right in PRINTED_CORRECTNESS[instruction]]
        rows.append(row)
    columns = ["prompt", names[0], "sd over folds", *names[1:]]
    if key == "scores":
        columns.insert(1, "% right")
        columns += ["paper's Llama, AUC (% right)", "paper's Gemma, AUC (% right)"]
    return Table(title, columns, rows, list(notes))


def _right_by_kind(done: Sequence[Measured]) -> Table:
    first = next(iter(done[0].result["instructions"].values()))
    rows: list[list[Entry]] = []
    for instruction in done[0].settings["instructions"]:
        parts = [cell.result["instructions"][instruction] for cell in done]
        shares = [Spread.of(part["accuracies"][kind] for part in parts)
                  for kind in first["accuracies"]]  # fmt: skip
        rows.append([instruction, *shares, Spread.of(part["likeliest"] for part in parts)])
    columns = ["prompt", *first["accuracies"], "all, by log-probability"]
    notes = ["by log-probability: the answer is the text with the highest log-probability itself"]
    return Table("Right answers by kind of question, in percent", columns, rows, notes)


def _printed(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _wordings(done: Sequence[Measured], title: str) -> Table:
    names = [*SHOWN, *plain_names(done[0]), DUMMY]
    rows: list[list[Entry]] = [
        [name, Spread.of(cell.result["other_wordings"][name][0] for cell in done)] for name in names
    ]
    notes = ["trained on one of the two wordings of a label and tested on the other, both ways"]
    return Table(title, ["features", "AUC"], rows, notes)


def plain_names(cell: Measured) -> list[str]:
    """Baselines that are an arm's own."""
    usual = (*SHOWN, DUMMY, PERMUTED)
    return [n for n in cell.result["scores"] if n not in usual and not n.startswith("layer ")]


def _deep_profiles(done: Sequence[Measured], title: str) -> Table:
    """Every few layers of a model that has many."""
    first = done[0].result["profiles"]
    layers = len(next(iter(first.values()))[0])
    chosen = sorted({0, *range(EVERY - 1, layers, EVERY), layers - 1})
    rows: list[list[Entry]] = []
    for label in first:
        own = [cell.result["profiles"][label][0] for cell in done]
        rows.append([label, *(Spread.of(values[n] for values in own) for n in chosen)])
    grows = [cell.result["expansion"] for cell in done]
    texts = [f"{np.mean([g[n - 1] for g in grows]):.0%}" if n else None for n in chosen]
    rows.append(["texts whose entropy rises here", *texts])
    notes = ["entropy in nats, averaged over positions and texts"]
    return Table(title, ["label", *(f"layer {n + 1}" for n in chosen)], rows, notes)


def _text_kind_figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    from intarsia.plots import alpha_sweep, curve_panels, layer_bars, profile_plane

    first = done[0].result
    title = "Entropy by layer and kind of text, stories260K"
    bars = layer_bars(_bars(done, (*SHOWN, PERMUTED)), title="Kind of text: AUC by features").figure
    return {
        "lens-profiles": curve_panels(
            {title: _bands(first)}, title=title, x="layer", y="entropy, nats"
        ),
        "lens-layers": bars,  # type: ignore[dict-item]
        "lens-alpha": alpha_sweep(_orders(done)),
        "lens-plane": profile_plane(
            np.array(first["plane"]), first["labels"], title="Profiles, principal components"
        ),
    }


def _asked_figures(arm: str) -> "Callable[[Sequence[Measured]], dict[str, Figure]]":
    def drawn(done: Sequence[Measured]) -> "dict[str, Figure]":
        from intarsia.plots import alpha_sweep, curve_panels, layer_bars, profile_plane

        first = done[0].result
        panel = f"Entropy by layer and {arm}"
        title = f"{panel}, {first['model']}"
        names = (*SHOWN, *plain_names(done[0]), PERMUTED)
        result: dict[str, Any] = {
            "profiles": curve_panels({panel: _bands(first)}, title=title, x="layer",
                                     y="entropy, nats"),
            "layers": layer_bars(_bars(done, names),
                                 title=f"{arm.capitalize()}: AUC by features").figure,
            "plane": profile_plane(np.array(first["plane"]), first["labels"],
                                   title=f"Profiles by {arm}, principal components"),
        }  # fmt: skip
        if len(first["alphas"]) > 1:
            result["alpha"] = alpha_sweep(_orders(done))
        return {f"lens-{arm}-{name}": own for name, own in result.items()}

    return drawn


def _bands(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        label: {float(n + 1): (m, s) for n, (m, s) in enumerate(zip(*own, strict=True))}
        for label, own in result["profiles"].items()
    }


def _bars(done: Sequence[Measured], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    spreads = {name: score(done, name) for name in names}
    return {
        name: (own.mean, own.sd if math.isfinite(own.sd) else 0.0)
        for name, own in spreads.items()
        if own.n
    }


def _orders(done: Sequence[Measured]) -> dict[str, dict[float, tuple[float, float]]]:
    return {
        f"seed {cell.settings['seed']}": {
            float(alpha): (mean, sd) for alpha, (mean, sd) in cell.result["alphas"].items()
        }
        for cell in done
    }


TABLES: dict[str, Callable[[Sequence[Measured]], list[Table]]] = {
    TEXT_KIND: _text_kind_tables,
    TASK: _task_tables,
    FORMAT: _format_tables,
    CORRECTNESS: _correctness_tables,
}
FIGURES: "dict[str, Callable[[Sequence[Measured]], dict[str, Figure]]]" = {
    TEXT_KIND: _text_kind_figures,
    TASK: _asked_figures(TASK),
    FORMAT: _asked_figures(FORMAT),
}
