"""Draw the figures of docs/ideas.md from modules trained on the digits; nothing in them is typed.

python docs/build/ideas.py
"""

import math
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import intarsia as ia
from ideas_maps import inlay_figure, unit_figure
from intarsia.data import Data, Split
from intarsia.modules import Bank, Module, logits_of
from intarsia.plots import bar_panels, curve_panels, matrix_panels, save

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "assets" / "ideas"
SETTINGS = {
    "preset": "paper", "model": "mlp(512)", "epochs": 10, "learning_rate": 0.01,
    "schedule": "cosine",
}  # fmt: skip
MINE, THEIRS = "3", "8"  # the module that is looked at, and one more


def main() -> None:
    torch.set_num_threads(1)  # the same bytes wherever it is drawn
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, figure in figures().items():
        save(figure, FOLDER / f"{name}.svg")
        print(f"docs/assets/ideas/{name}.svg")


def figures() -> dict[str, Figure]:
    """All figures, by name."""
    data = ia.load_data("digits")
    pruned = ia.train(data, sparsity=0.95, keep_rounds=True, **SETTINGS)
    dense = pruned.rounds[0]
    territory = ia.train(data, pruning="territory", **{**SETTINGS, "epochs": 30})
    plain = ia.train(data, sparsity=0, objective="xe", partition=[[MINE], [THEIRS]], **SETTINGS)
    return {
        "objective": objective_figure(data),
        "answers": answers(data, dense[MINE], plain[MINE]),
        "units": unit_figure({"95% pruned": pruned, "territories": territory}),
        "joining": joining(data, {"dense": dense, "95% pruned": pruned, "territories": territory}),
        "inlay": inlay_figure([pruned[name] for name in ("0", MINE, THEIRS)]),
        "path": path(data, {"me": dense, "xe": plain}),
        "rounds": rounds(data, pruned),
        "unknown": unknown(data, pruned),
    }


def objective_figure(data: Data) -> Figure:
    """What a module for one class is to answer for every label; hidden labels have no row."""
    panels = {}
    for name in ("me", "qme", "xe"):
        goal = ia.objective(name, data.classes, [data.catalogue.index(MINE)])
        table = goal.table.double().numpy().copy()
        table[goal.weight.numpy() == 0] = np.nan
        panels[name] = table
    return matrix_panels(panels, data.catalogue)


def answers(data: Data, taught: Module, plain: Module) -> Figure:
    """Mean answers of two modules to their own class and to all others."""
    mine = data.test.y == data.catalogue.index(MINE)
    shown = {f"shown {MINE}": mine, f"shown any digit but {MINE}": ~mine}
    panels = {
        title: {
            digit: {
                name: (float(p[i].mean()), float(p[i].std()))
                for name, p in (
                    ("me", _probabilities(taught, data.test, rows)),
                    ("xe", _probabilities(plain, data.test, rows)),
                )
            }
            for i, digit in enumerate(data.catalogue)
        }
        for title, rows in shown.items()
    }
    title = f"mean answers of modules for {MINE}, by objective"
    return bar_panels(
        panels, title=title, x="answer", y="probability", share_y=True, bounds=(0.0, 1.0)
    )


def joining(data: Data, banks: dict[str, Bank]) -> Figure:
    """Accuracy on the classes joined so far, weights added and side by side."""
    panels: dict[str, dict[str, dict[float, float]]] = {}
    for title, bank in banks.items():
        panels[title] = {}
        for operator in ("sum", "inlay"):
            curve = panels[title].setdefault(operator, {})
            for count in range(1, len(bank) + 1):
                merged = ia.compose(bank[:count], operator)
                curve[count] = ia.evaluate(merged, data.test).accuracy
    return curve_panels(
        panels, title="accuracy on the classes joined", x="modules joined", y="accuracy",
        share_y=True, bounds=(0.0, 1.0),
    )  # fmt: skip


def path(data: Data, banks: dict[str, Bank]) -> Figure:
    """How far the loss rises above the straight line between the ends of a path, in percent."""
    panels = {}
    for objective, bank in banks.items():
        result = ia.path(bank[MINE], bank[THEIRS], data)
        panels[f"modules trained by {objective}"] = {
            split: dict(zip(result.t.tolist(), curve.excess.tolist(), strict=True))
            for split, curve in result.curves.items()
        }
    return curve_panels(
        panels, title=f"from {MINE} to {THEIRS} through their sum", x=f"t, from {MINE} to {THEIRS}",
        y="excess, %", bands={"up to 2%: connected": (-math.inf, 2.0)},
    )  # fmt: skip


def rounds(data: Data, bank: Bank) -> Figure:
    """What pruning leaves, round by round: means over modules, and all of them joined."""
    panels: dict[str, dict[str, dict[float, tuple[float, float]]]] = {
        "rewarded accuracy": {"single modules": {}, "all, weights added": {}, "all, inlay": {}},
        "non-rewarded entropy": {"single modules": {}},
    }
    names = {}
    for number, stage in enumerate([*bank.rounds, bank], start=1):
        alone = [ia.evaluate(module, data.test) for module in stage]
        names[number] = f"{number}: {stage[0].density:.0%}"
        for key, title in (("accuracy", "rewarded accuracy"), ("entropy", "non-rewarded entropy")):
            values = np.array([getattr(result, key) for result in alone])
            panels[title]["single modules"][number] = (float(values.mean()), float(values.std()))
        for operator, title in (("sum", "all, weights added"), ("inlay", "all, inlay")):
            result = ia.evaluate(ia.compose(stage, operator), data.test)
            panels["rewarded accuracy"][title][number] = (result.accuracy, 0.0)
    ceiling = math.log(data.classes)
    return curve_panels(
        panels, title="rounds of pruning", x="round: weights that survive", x_names=names,
        bounds={"rewarded accuracy": (0.0, 1.0), "non-rewarded entropy": (0.0, ceiling)},
    )  # fmt: skip


def unknown(data: Data, bank: Bank) -> Figure:
    """How uncertain a composition of five modules is about their digits and about the others."""
    five = ia.compose(bank[:5], "inlay")
    uncertain = np.asarray(ia.entropy(logits_of(five, data.test.x), five.temperature))
    known = (data.test.y < 5).numpy()
    ceiling = math.log(data.classes)
    edges = np.linspace(0, ceiling, 13)
    curves = {}
    for name, rows in (("digits 0 to 4", known), ("digits 5 to 9", ~known)):
        counts, _ = np.histogram(uncertain[rows], edges)
        middles = (edges[:-1] + edges[1:]) / 2
        curves[name] = dict(zip(middles.tolist(), (counts / rows.sum()).tolist(), strict=True))
    limit = ia.threshold(five, data.validation.select(range(5))) * ceiling
    return curve_panels(
        {"modules 0 to 4 joined": curves}, title="entropy of answers", x="entropy of the answer",
        y="fraction of samples", x_names={0.0: "0", limit: "threshold", ceiling: f"{ceiling:.2f}"},
        bounds=(0.0, 1.0),
    )  # fmt: skip


def _probabilities(module: Module, split: Split, rows: torch.Tensor) -> np.ndarray:
    """C x N."""
    return module.to_module().predict_proba(split.x[rows]).double().numpy().T


if __name__ == "__main__":
    main()
