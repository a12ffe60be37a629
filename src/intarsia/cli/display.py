"""What each verb prints for people, out of the values that describe.py makes."""

import math
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from intarsia.cli.console import facts, fits, plain_text, say, show, table

if TYPE_CHECKING:
    from intarsia.measure import Evaluation

MISTAKES = 20  # kinds that are shown


def show_datasets(datasets: list[dict[str, Any]]) -> None:
    """Every named data set in a row."""
    columns = ("name", "title", "inputs", "classes", "rows", "where")
    rows = [["-" if entry[c] is None else entry[c] for c in columns] for entry in datasets]
    show(table(columns, rows))


def show_data(data: dict[str, Any]) -> None:
    """What a data set holds, class by class and split by split."""
    counts = data["counts"]
    rows = [[name, *(split[name] for split in counts.values())] for name in data["catalogue"]]
    rows.append(["all", *(sum(split.values()) for split in counts.values())])
    show(
        facts(
            (key, data[key])
            for key in ("name", "inputs", "type", "encoder", "scaling", "digest")
            if key in data
        ),
        table(["class", *counts], rows),
    )


def show_plan(plan: dict[str, Any]) -> None:
    """A resolved recipe, as YAML, what it was chosen for, and how many modules it makes."""
    import yaml

    from intarsia.training import PRESETS
    from intarsia.training.settings.presets import DataSize

    recipe = plan["recipe"]
    missing = f"unknown until {recipe['data']} is here"
    settings = {key: value for key, value in recipe.items() if key not in plan["open"]}
    show(yaml.safe_dump(settings, sort_keys=False).rstrip())
    for key in plan["open"]:
        show(f"{key}: {missing}")
    if PRESETS[recipe["preset"]].by_size:
        absent = f"{recipe['data']}, which is not on this machine"
        show(f"chosen for: {DataSize(**plan['size']) if plan['size'] else absent}")
    show(f"modules: {missing if plan['modules'] is None else plan['modules']}")


def show_description(result: dict[str, Any]) -> None:
    """A module, a composition with its parts, or a bank."""
    if result["kind"] == "bank":
        return show_bank(result)
    show_composition(result)
    for part in ("parts", "tensors"):
        if rows := result.get(part):
            columns = [column for column in rows[0] if column != "digest"]
            show(table(columns, [[plain_text(row[c]) for c in columns] for row in rows]))


def show_facts(result: dict[str, Any]) -> None:
    """What a module, a composition or a file is, without its tables."""
    skipped = ("health", "parts", "tensors", "provenance", "calibration")
    rows = [(k.replace("_", " "), plain_text(v)) for k, v in result.items() if k not in skipped]
    provenance = [(k, plain_text(v)) for k, v in result.get("provenance", {}).items()]
    show(facts(row for row in [*rows, *provenance] if row[1]))


def show_composition(result: dict[str, Any]) -> None:
    """What it is, and accuracy and loss with and without its calibration, where it has one."""
    from intarsia.measure import format_number

    show_facts(result)
    fitted = result.get("calibration")
    if fitted is None:
        return
    rows = [
        (way, format_number(fitted[f"accuracy_{way}"]), format_number(fitted[f"loss_{way}"]))
        for way in ("without", "with")
    ]
    show(
        table(["calibration", "accuracy", "loss"], rows, f"on {fitted['samples']} samples"),
        table(
            ["module", "scale", "offset"],
            [(name, f"{scale:.4f}", f"{fitted['offsets'][name]:.4f}")
             for name, scale in fitted["scales"].items()],
        ),
    )  # fmt: skip


def show_abstention(result: dict[str, Any]) -> None:
    """How often each model withholds its answer, by name."""
    from intarsia.measure import format_number

    keys = ("answered", "accuracy", "refused", "auroc_entropy")
    rows = [(name, *(format_number(getattr(a, key)) for key in keys)) for name, a in result.items()]
    fraction = next(iter(result.values())).threshold
    headings = ["abstaining", "rewarded answered", "of these right", "others refused", "AUROC"]
    title = f"above {fraction:g} of the largest entropy"
    show(table(headings, rows, title))


def show_operators(result: list[dict[str, Any]]) -> None:
    """One table for operators on weights, one for those on logits, and so on."""
    for on in dict.fromkeys(entry["on"] for entry in result):
        rows = [
            (
                entry["name"] + ("*" if entry["samples"] else ""),
                entry["title"],
                ", ".join(k if v is None else f"{k}={v}" for k, v in entry["settings"].items()),
            )
            for entry in result
            if entry["on"] == on
        ]
        show(table(["operator", "joins", "settings"], rows, f"on {on}"))
    show("* looks at samples: give them with --samples", "--json adds the papers")


def show_scores(scores: dict[str, Any], confusion: bool) -> None:
    """Evaluations by name: one in full, several in one row each."""
    from intarsia.measure import format_number

    each = list(scores.values())
    if len(each) == 1:
        show(each[0])
    else:
        columns = ["module", "rewarded accuracy", "non-rewarded entropy"]
        rows = [[n, format_number(s.accuracy), format_number(s.entropy)] for n, s in scores.items()]
        if each[0].unknown is not None:
            columns += ["unknown entropy", "AUROC"]
            for row, score in zip(rows, each, strict=True):
                measured = (score.unknown.entropy, score.unknown.auroc_entropy)
                row += map(format_number, measured)
        show(table(columns, rows))
        show(_means([vars(s) for s in each]) + f" of {each[0].ceiling:.4f}")
    for name, score in scores.items() if confusion else ():
        counts = zip(score.catalogue, score.confusion.tolist(), strict=True)
        title = f"{name}: true class by answer"
        matrix = table(["", *score.catalogue], [(c, *row) for c, row in counts], title)
        if fits(matrix):
            show(matrix)
        else:
            show_mistakes(name, score)


def show_mistakes(name: str, score: "Evaluation") -> None:
    """What is taken for what most often, where a confusion matrix has too many classes to show."""
    counts = score.confusion.tolist()
    wrong = [
        (count, true, answer)
        for row, true in zip(counts, score.catalogue, strict=True)
        for count, answer in zip(row, score.catalogue, strict=True)
        if count and true != answer
    ]
    rows = [(t, a, n) for n, t, a in sorted(wrong, key=lambda one: -one[0])[:MISTAKES]]
    title = f"{name}: {sum(n for n, *_ in wrong)} mistakes of {len(wrong)} kinds"
    show(table(["true class", "answer", "samples"], rows, title))
    show("--figure draws the whole matrix, and --json has its numbers")


def show_bank(result: dict[str, Any]) -> None:
    """The modules of a bank with the scores of their training; those that diverged by name."""
    from intarsia.measure import format_number

    modules = result["modules"]
    rows = [
        (
            m["name"],
            format_number(m["accuracy"]),
            format_number(m["entropy"]),
            f"{m['density']:.2%}",
            m["bytes"],
        )
        for m in modules
    ]
    ceiling = f"entropy (of {result['ceiling']:.3f})" if modules else "entropy"
    show(
        f"{result['architecture'] or 'no module'}; scores on validation data",
        table(["module", "accuracy", ceiling, "density", "bytes"], rows),
        _means(modules),
        f"engine: {result['engine']} on {result['device']}",
        *([f"changes of the base {result['base']}"] if "base" in result else []),
    )
    for name in result["diverged"]:
        say(f"module {name!r} diverged and is kept out: lower its learning rate")


def show_features_demo(findings: Any) -> None:
    """The findings of the demo on features: ways to a classifier, and a module taken out."""
    from intarsia.measure import format_number

    right = sum(symbol == answer for symbol, answer in findings.asked)
    show(
        table(
            [f"{findings.classes} symbols", "accuracy", "training, s"],
            [
                (way, format_number(accuracy), f"{findings.seconds[way]:.1f}")
                for way, accuracy in findings.accuracy.items()
            ],
            f"Heads on {findings.encoder}, joined without training",
        ),
        f"features: {findings.seconds['features']:.1f} s, computed once; "
        f"a module's file: {findings.bytes:,} bytes",
        f"one symbol's module taken out: accuracy on it {findings.removed[0]:.3f} before, "
        f"{findings.removed[1]:.3f} after; on the others {findings.others[0]:.3f} before, "
        f"{findings.others[1]:.3f} after",
        "put back: the same bits" if findings.same_bits else "put back: NOT the same bits",
        f"the saved file, given raw pictures: {right} of {len(findings.asked)} right",
    )


def show_demo(findings: Any) -> None:
    """The demo's findings: each module, all of them joined, one removed."""
    from intarsia.measure import format_number

    removal = findings.removal
    show(
        table(
            ["module", "accuracy", f"entropy (of {findings.ceiling:.3f})", "density", "bytes"],
            [
                (
                    m.name,
                    format_number(m.accuracy),
                    format_number(m.entropy),
                    f"{m.density:.1%}",
                    f"{m.bytes:,}",
                )
                for m in findings.modules
            ],
            "Each module: accuracy on its own digit, entropy on the others",
        ),
        table(
            ["all ten digits, one network", "accuracy", "parameters"],
            [(r.name, format_number(r.accuracy), f"{r.parameters:,}") for r in findings.rows],
            "Joined without training, and one network trained on all",
        ),
        table(
            [
                "weights added",
                f"accuracy on {removal.name}",
                "entropy there",
                "accuracy on the rest",
            ],
            [(when, *map(format_number, numbers)) for when, *numbers in removal.rows()],
            f"Digit {removal.name} taken out and put back"
            + (": the same bits" if removal.same_bits else ": NOT the same bits"),
        ),
        f"test data, {findings.test_samples} samples; engine: {findings.engine}",
    )


def _spread(values: Iterable[float | None]) -> str:
    """Mean and standard deviation of the values that are known."""
    known = [v for v in values if v is not None and not math.isnan(v)]
    if not known:
        return "-"
    mean = f"{statistics.fmean(known):.4f}"
    return mean if len(known) == 1 else f"{mean} ± {statistics.stdev(known):.4f}"


def _means(rows: list[dict[str, Any]]) -> str:
    accuracy, entropy = (_spread([row[k] for row in rows]) for k in ("accuracy", "entropy"))
    many = "1 module" if len(rows) == 1 else f"{len(rows)} modules, mean ± deviation"
    return f"{many}: accuracy {accuracy}, entropy {entropy}"
