"""Ten digit modules from data to one classifier, with a report: what `intarsia demo` runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch

from intarsia import plots
from intarsia.composition import Composition, compose
from intarsia.data import Data, Split, load_data
from intarsia.files import plain, write_whole
from intarsia.measure import Evaluation, evaluate
from intarsia.modules import Bank, Module, Predicting, file_name, logits_of
from intarsia.reports import report
from intarsia.training import Recipe, train

# Learning rate, schedule and epochs were chosen on validation data, not on the test data below.
SETTINGS: dict[str, Any] = {
    "preset": "paper",  # its modules are joined by adding weights
    "data": "digits",
    "model": "mlp(512)",
    "sparsity": 0.95,
    "epochs": 20,
    "learning_rate": 0.01,
    "schedule": "cosine",
}
APPROACHES = {
    "sum": "modules, weights added",
    "inlay": "modules, laid side by side (inlay)",
    "territory": "modules with territories, weights added",
    "joint": "one network trained on all",
}
REMOVED = "3"
COMMANDS = (
    "intarsia inspect {folder}/modules/{removed}.safetensors",
    "intarsia evaluate {folder}/whole.safetensors --data digits --confusion",
    "intarsia compose {folder}/modules --without {removed} -o {folder}/nine.safetensors",
    "intarsia evaluate {folder}/nine.safetensors --data digits",
    "intarsia compatibility {folder}/modules --samples digits",
    "intarsia path {folder}/modules/3.safetensors {folder}/modules/8.safetensors",
    "intarsia compose {folder}/modules --operator inlay -o {folder}/inlay.safetensors",
    "intarsia train {folder}/modules/recipe.yaml {folder}/again --seeds 1",
)


@dataclass(frozen=True)
class ModuleScores:
    """One module, measured on the test data."""

    name: str
    accuracy: float
    entropy: float
    density: float
    bytes: int  # of its file


@dataclass(frozen=True)
class Approach:
    """One way to a classifier of all classes, measured on the test data."""

    name: str
    parameters: int  # that survive
    accuracy: float


@dataclass(frozen=True)
class Removal:
    """The weight sum before a module is removed, without it, and with it put back."""

    name: str
    accuracy: tuple[float, float, float]  # on the class
    entropy: tuple[float, float, float]  # on the class
    others: tuple[float, float, float]  # accuracy on the other classes
    same_bits: bool  # whether the logits at the end are those of the beginning

    def rows(self) -> list[tuple[str, float, float, float]]:
        """When, and then accuracy and entropy on the class and accuracy on the others."""
        when = ("whole", f"without {self.name}", "put back")
        return list(zip(when, self.accuracy, self.entropy, self.others, strict=True))


@dataclass(frozen=True)
class DemoFindings:
    """What the demo measured."""

    ceiling: float
    test_samples: int
    modules: list[ModuleScores]
    rows: list[Approach]
    removal: Removal
    dense_bytes: int  # of one module's weights, unpruned
    engine: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        rows = {key: [vars(row) for row in getattr(self, key)] for key in ("modules", "rows")}
        return plain({**vars(self), **rows, "removal": vars(self.removal)}, "findings")


def demo(
    out: str | Path = "demo",
    *,
    epochs: int | None = None,
    progress: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> DemoFindings:
    """Train, join, take apart, and write the report; a finished folder is read, not trained again.

    The modules with territories and the joint network get as many epochs as the pruned modules have
    in all their rounds together.
    """
    out, epochs = Path(out), epochs or SETTINGS["epochs"]
    data = load_data(SETTINGS["data"])
    recipe = Recipe(**{**SETTINGS, "epochs": epochs}).resolve()
    dense = {"sparsity": 0.0, "epochs": epochs * (1 + (recipe.rounds or 0))}
    territory = {**dense, "pruning": "territory"}
    everything = {**dense, "objective": "xe", "partition": [list(data.catalogue)]}

    def bank(folder: str, **settings: Any) -> Bank:
        chosen = {**SETTINGS, "epochs": epochs, **settings}
        return train(data, Recipe(**chosen), out=out / folder, progress=progress)

    say("training ten modules, one for each digit, in three rounds to 95% sparsity")
    modules = bank("modules")
    say("training ten more modules, each with hidden units of its own (territory)")
    territories = bank("territory", **territory)
    say("training one network on all digits, for comparison")
    joint = bank("joint", **everything)[0]

    say("joining and measuring")
    whole = compose(modules, "sum")
    networks: dict[str, Composition | Module] = {
        "sum": whole,
        "inlay": compose(modules, "inlay"),
        "territory": compose(territories, "sum"),
        "joint": joint,
    }
    whole.save(out / "whole.safetensors")
    scores = {name: evaluate(network, data.test) for name, network in networks.items()}
    findings = DemoFindings(
        ceiling=scores["sum"].ceiling,
        test_samples=len(data.test),
        modules=[_module_scores(module, data.test, out / "modules") for module in modules],
        rows=[
            Approach(title, networks[key].nonzero, scores[key].accuracy)
            for key, title in APPROACHES.items()
        ],
        removal=_remove_and_add(compose(modules, "sum"), modules[REMOVED], data),
        dense_bytes=sum(t.numel() * t.element_size() for t in modules[0].state.values()),
        engine=f"{modules.report['engine']} on {modules.report['device']}",
        versions=modules.report["versions"],
    )
    _draw(out, modules, whole, scores, data)
    write_whole(out / "report.md", _report(findings, recipe, out).encode())
    say("writing the report")
    report(out, data).save(out / "report.html")
    return findings


def _module_scores(module: Module, split: Split, folder: Path) -> ModuleScores:
    score = evaluate(module, split)
    size = (folder / file_name(module.name)).stat().st_size
    return ModuleScores(module.name, score.accuracy, score.entropy, module.density, size)


def _remove_and_add(merged: Composition, module: Module, data: Data) -> Removal:
    """Measure with the module, without it, and with it put back: in the end nothing has changed."""
    mine = data.catalogue.index(module.rewarded[0])
    others = [c for c in range(data.classes) if c != mine]
    logits, scores = [], []
    for change in (None, merged.remove, merged.add):
        if change is not None:
            change(module)
        score = evaluate(merged, data.test, rewarded=others)
        scores.append(
            (score.accuracy_per_class[mine], score.entropy_per_class[mine], score.accuracy)
        )
        logits.append(logits_of(merged, data.test.x))
    accuracy, entropy, rest = (tuple(map(float, column)) for column in zip(*scores, strict=True))
    same = torch.equal(logits[0], logits[2])
    return Removal(module.name, accuracy, entropy, rest, same)  # type: ignore[arg-type]


def _draw(
    out: Path, bank: Bank, whole: Composition, scores: dict[str, Evaluation], data: Data
) -> None:
    parts = {module.name: _answers(module.to_module(), data.test) for module in bank}
    merged = {"ten modules, weights added": _answers(whole, data.test)}
    plots.save(plots.answers(parts, merged, data.catalogue), out / "answers.svg")
    titles = {"weights added": "sum", "inlay": "inlay", "trained on all": "joint"}
    counts = {title: scores[key].confusion for title, key in titles.items()}
    plots.save(plots.confusion_panels(counts, data.catalogue), out / "confusion.svg")


def _answers(model: Predicting, split: Split) -> np.ndarray:
    """The mean probability of every answer, true class by answer."""
    answers = model.predict_proba(split.x).double().numpy()
    labels = split.y.numpy()
    return np.stack([answers[labels == c].mean(axis=0) for c in range(answers.shape[1])])


def _report(findings: DemoFindings, recipe: Recipe, out: Path) -> str:
    singles, removal = findings.modules, findings.removal
    mean = [float(np.mean([getattr(s, k) for s in singles])) for k in ("accuracy", "entropy")]
    lines = [
        "# Ten digit modules, joined",
        "",
        f"All numbers are of the {findings.test_samples} test samples of scikit-learn's digits, "
        f"seed 0. Engine {findings.engine}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(findings.versions.items()))
        + ".",
        "",
        "## Each module alone",
        "",
        "A module is sure of its own digit and as uncertain as can be about the others: its "
        f"entropy there is at most log {len(singles)} = {findings.ceiling:.3f}. After pruning "
        f"{recipe.sparsity:.0%} of the weights, biases stay. Unpruned, a module's weights take "
        f"{findings.dense_bytes:,} bytes.",
        "",
        "| module | accuracy on its digit | entropy on the others | density | file, bytes |",
        "|---|---|---|---|---|",
        *(
            f"| {s.name} | {s.accuracy:.3f} | {s.entropy:.3f} | {s.density:.3f} | {s.bytes:,} |"
            for s in singles
        ),
        f"| mean | {mean[0]:.3f} | {mean[1]:.3f} | | |",
        "",
        "![What each module answers, and what they answer together](answers.svg)",
        "",
        "## Joined",
        "",
        "Nothing was trained after joining; each row is one network.",
        "",
        "| | accuracy | parameters |",
        "|---|---|---|",
        *(f"| {r.name} | {r.accuracy:.3f} | {r.parameters:,} |" for r in findings.rows),
        "",
        "![Confusion matrices](confusion.svg)",
        "",
        f"## Digit {removal.name} taken out and put back",
        "",
        "The modules joined by adding weights:",
        "",
        f"| | accuracy on {removal.name} | entropy on {removal.name} | accuracy on the others |",
        "|---|---|---|---|",
        *(f"| {when} | {a:.3f} | {e:.3f} | {o:.3f} |" for when, a, e, o in removal.rows()),
        "",
        "Put back, the logits are "
        + ("bit for bit what they were." if removal.same_bits else "NOT what they were."),
    ]
    return page_of(lines, next_commands(out))


def page_of(lines: Sequence[str], commands: Sequence[str]) -> str:
    """A page of Markdown that ends with commands to go on with."""
    return "\n".join([*lines, "", "## Go on", "", "```bash", *commands, "```", ""])


def next_commands(
    out: Path, commands: Sequence[str] = COMMANDS, removed: str = REMOVED
) -> list[str]:
    """Commands that go on with what a demo wrote into its folder."""
    return [line.format(folder=quote(str(out)), removed=removed) for line in commands]
