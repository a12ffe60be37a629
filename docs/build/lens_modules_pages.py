"""The part of the lens page on class modules: entropy through their layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.studies.wording import several
from pages import RESULTS, Load, command, mean_sd, table

PARTS = ("digits", "mnist", "lenet", "cifar", "vit")
TITLES = {
    "digits": "Digits: fully connected modules",
    "mnist": "MNIST: fully connected modules",
    "lenet": "MNIST: LeNet modules",
    "vit": "MNIST: small vision transformers",
    "cifar": "CIFAR-100, ten classes: ResNet modules",
}
NEAR = 0.005  # of an AUC that counts as no worse


def lens_modules(load: Load) -> str:
    """The section, headed for the lens page; of experiments that are there."""
    known = [part for part in PARTS if (RESULTS / f"lens_modules_{part}.json").exists()]
    parts = [
        "## On class modules",
        "From which layer on is a class module sure of its own class and uncertain about the "
        "rest? Each hidden layer answers through a tuned lens, a least-squares map to the "
        "module's own logits fitted on training samples; all numbers are for test samples. A "
        "layer is named after the one that reads it, so the last hidden layer is the module's own "
        "head by construction. AUCs are by entropy alone. Unfamiliar inputs are noise in the "
        "range of the samples, and test samples with their pixels shuffled, each in its own order.",
    ]
    for part in known:
        result = load(f"lens_modules_{part}")
        parts += [f"### {TITLES[part]}", _about(result), *_tables(result), _reading(result)]
        if "noted" in result:
            parts.append(_beside(result))
    return "\n\n".join(parts)


def _about(result: Mapping[str, Any]) -> str:
    runs, train = result["runs"], result["train"]
    density = sum(run["density"] for run in runs) / len(runs)
    seconds = [sum(run["seconds"][key] for run in runs) for key in ("training", "lenses")]
    return (
        f"{runs[0]['modules']} modules `{train['model']}`, {1 - density:.1%} pruned, "
        f"{several(result['seeds'], 'seed')}, trained on "
        f"{result['samples']['train']:,} samples of {result['data']}; {runs[0]['samples']:,} test "
        f"samples. Training took {seconds[0]:,.0f} s and the lenses {seconds[1]:,.0f} s of elapsed "
        f"time on {result['machine']}, shared with other work. `{command(result)}`"
    )


def _tables(result: Mapping[str, Any]) -> list[str]:
    seeds = result["seeds"]
    keys = ("rewarded", "other", "auc_other", "auc_wrong", "noise", "shuffled", "explained")
    own = [[row["name"], *(_cell(row[key], seeds) for key in keys), *_signs(result, place)]
           for place, row in enumerate(result["layers"])]  # fmt: skip
    head = "layer|entropy, rewarded|entropy, other|AUC rewarded/other|AUC right/wrong"
    head += "|AUC noise|AUC shuffled|variance explained|change, rewarded|change, other"
    joint_keys = ("right", "wrong", "auc_wrong", "noise", "shuffled")
    joint = [
        [row["name"], *(_cell(row["joint"].get(key), seeds) for key in joint_keys)]
        for row in result["layers"]
    ]
    wrong = [run["wrong"] for run in result["runs"]]
    counts = ", ".join(map(str, wrong))
    return [
        "Means over modules; if there are several seeds, mean ± standard deviation over them. "
        "*Change* counts the modules of all seeds that expand (+), prune (-) or do neither (=), "
        "relative to the layer above.",
        table(head, own),
        f"All modules together, the surest one answering: wrong on {counts} of "
        f"{result['runs'][0]['samples']:,} samples. Entropy of the answering module where it is "
        "right and where it is wrong; noise and shuffled samples are judged by the lowest entropy "
        "over modules.",
        table(
            "layer|entropy where right|where wrong|AUC right/wrong|AUC noise|AUC shuffled", joint
        ),
    ]


def _signs(result: Mapping[str, Any], place: int) -> list[str]:
    texts = []
    for group in ("rewarded", "other"):
        counts = [run["layers"][place]["change"][group] for run in result["runs"]]
        totals = [sum(one[key] for one in counts) for key in ("expand", "prune", "neither")]
        texts.append(" ".join(f"{n}{mark}" for n, mark in zip(totals, "+-=", strict=True) if n))
    return texts


def _reading(result: Mapping[str, Any]) -> str:
    """What the tables say, by the same rule for every data set."""
    rows = result["layers"]
    last = rows[-1]
    own = _first(rows, last, lambda row: row["auc_other"])
    text = f"AUC rewarded/other: at most {NEAR} below its value at the logits from {own} on. "
    for kind, about in (("noise", "Noise"), ("shuffled", "Shuffled samples")):
        if last["joint"]:
            place = _first(rows, last, lambda row, kind=kind: row["joint"][kind])
            first = rows[0]["joint"][kind]["mean"]
            end = last["joint"][kind]["mean"]
            text += (
                f"{about}: AUC {first:.3f} at the input and {end:.3f} at the logits, likewise "
                f"from {place} on. "
            )
    return text.strip()


def _first(rows: Sequence[Mapping[str, Any]], last: Mapping[str, Any], value: Any) -> str:
    """The first layer from which on a measure stays as good as at the logits."""
    enough = [value(row)["mean"] >= value(last)["mean"] - NEAR for row in rows]
    place = next(n for n in range(len(rows)) if all(enough[n:]))
    return f"`{rows[place]['name']}`"


def _beside(result: Mapping[str, Any]) -> str:
    """An earlier measurement by one seed, of settings that were not written down in full."""
    noted, rows, seeds = result["noted"], result["layers"], result["seeds"]
    body = [
        [row["name"], *(f"{noted[key][place]} / {_cell(row[key], seeds)}" for key in
                        ("auc_other", "rewarded", "other"))]
        for place, row in enumerate(rows)
    ]  # fmt: skip
    joint = rows[-1]["joint"]
    more = (
        f"Entropy of the winning module where right: {noted['right']} / "
        f"{_cell(joint['right'], seeds)}; where wrong: {noted['wrong']} ({noted['wrong_samples']} "
        f"of {noted['samples']}) / {_cell(joint['wrong'], seeds)}. AUC for noise: {noted['noise']} "
        f"/ {_cell(joint['noise'], seeds)}; for shuffled samples: {noted['shuffled']} / "
        f"{_cell(joint['shuffled'], seeds)}."
    )
    return "\n\n".join(
        [
            "An earlier measurement with one seed and plain least squares (before the slash) and "
            "the present one (after it):",
            table("layer|AUC rewarded/other|entropy, rewarded|entropy, other", body),
            more,
        ]
    )


def _cell(value: Mapping[str, Any] | None, seeds: int) -> str:
    if value is None:
        return "-"
    return f"{value['mean']:.3f}" if seeds == 1 else mean_sd(value, 3)
