"""The part of the lens page on class modules: entropy through their layers."""

from collections.abc import Mapping, Sequence
from typing import Any

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
        "Each hidden layer answers through a tuned lens, a least-squares map to the module's own "
        "logits that is fitted on training samples; all numbers are of test samples. A layer is "
        "called after the one that reads it, so that the last hidden layer is the own head by "
        "construction. AUC: by entropy alone. Strangers are noise of the samples' range, and test "
        "samples whose pixels are shuffled, each by an order of its own.",
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
        f"{result['seeds']} {'seed' if result['seeds'] == 1 else 'seeds'}, trained on "
        f"{result['samples']['train']:,} samples of {result['data']}; {runs[0]['samples']:,} test "
        f"samples. Training took {seconds[0]:,.0f} s, the lenses {seconds[1]:,.0f} s, by the clock "
        f"on {result['machine']}, with other work on the machine. `{command(result)}`"
    )


def _tables(result: Mapping[str, Any]) -> list[str]:
    seeds = result["seeds"]
    keys = ("rewarded", "other", "auc_other", "auc_wrong", "noise", "shuffled", "explained")
    own = [[row["name"], *(_cell(row[key], seeds) for key in keys), *_signs(result, place)]
           for place, row in enumerate(result["layers"])]  # fmt: skip
    head = "layer|entropy, rewarded|entropy, other|AUC rewarded or other|AUC right or wrong"
    head += "|AUC noise|AUC shuffled|variance explained|change, rewarded|change, other"
    joint_keys = ("right", "wrong", "auc_wrong", "noise", "shuffled")
    joint = [
        [row["name"], *(_cell(row["joint"].get(key), seeds) for key in joint_keys)]
        for row in result["layers"]
    ]
    wrong = [run["wrong"] for run in result["runs"]]
    counts = ", ".join(map(str, wrong))
    return [
        "Means over modules, and over seeds with their standard deviation where there are several; "
        "change: modules of all seeds that expand (+), prune (-) or do neither (=) against "
        "the layer above.",
        table(head, own),
        f"All modules together: the surest answers, wrong on {counts} of "
        f"{result['runs'][0]['samples']:,}. Its entropy where it is right and where it is wrong, "
        "and the lowest entropy over modules against strangers.",
        table("layer|where right|where wrong|AUC right or wrong|AUC noise|AUC shuffled", joint),
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
    text = f"Rewarded or other: no worse than the logits by more than {NEAR} from {own} on. "
    for kind, about in (("noise", "Noise"), ("shuffled", "Shuffled samples")):
        if last["joint"]:
            place = _first(rows, last, lambda row, kind=kind: row["joint"][kind])
            first = rows[0]["joint"][kind]["mean"]
            end = last["joint"][kind]["mean"]
            text += f"{about}: {first:.3f} at the input, {end:.3f} at the logits, from {place} on. "
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
        f"Winning module where right, {noted['right']} / {_cell(joint['right'], seeds)}; where "
        f"wrong, {noted['wrong']} ({noted['wrong_samples']} of {noted['samples']}) / "
        f"{_cell(joint['wrong'], seeds)}; noise {noted['noise']} / {_cell(joint['noise'], seeds)}; "
        f"shuffled {noted['shuffled']} / {_cell(joint['shuffled'], seeds)}."
    )
    return "\n\n".join(
        [
            "An earlier measurement by one seed, with plain least squares, stands before the "
            "stroke and ours behind it:",
            table("layer|AUC rewarded or other|entropy, rewarded|entropy, other", body),
            more,
        ]
    )


def _cell(value: Mapping[str, Any] | None, seeds: int) -> str:
    if value is None:
        return "-"
    return f"{value['mean']:.3f}" if seeds == 1 else mean_sd(value, 3)
