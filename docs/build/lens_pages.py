"""The page on the lens: targets and findings, from archives and result files."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import studies
from intarsia.plots import profile_plane
from intarsia.studies import Findings
from lens_modules_pages import PARTS, TITLES, lens_modules
from pages import RESULTS, Load, command, mean_sd, met, page, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "lens"
SPEED, FAMILY, DIGITS = "lens_profile_speed", "lens_family", "lens_modules_digits"
MOST = 1.3  # times a plain forward pass
FLAT = 0.005  # of an AUC that counts as no change
PLANES = {"form": "lens-family-form", "depth": "lens-family-depth"}
ASKED = ("task", "format")


def lens(load: Load) -> str:
    """Targets first, then further findings, then every table."""
    aims: list[list[Any]] = [
        ["Entropies equal those worked out by hand and log V for the uniform distribution, and the "
         "last layer's entropy equals that of the model's own answer to 1e-5",
         "checked by tests/lens in every run of the suite", "-", "met"],
    ]  # fmt: skip
    beside: list[str] = []
    tables: list[str] = []
    for variant in studies.read_studies(RESULTS).get(NAME, []):
        claims = variant.study.judge(Findings(variant.measured, variant.label)).claims
        aims += [
            [claim.evidence["aim"], claim.evidence["measured"], claim.n, met(bool(claim.holds))]
            for claim in claims
            if "aim" in claim.evidence
        ]
        beside += [f"- {claim.text}" for claim in claims if "aim" not in claim.evidence]
        tables += studies.tables_markdown(variant.study.tables(variant.measured))
    aims += _flat(load) + _fast(load)
    drawn = [f"![{_alt(name)}]({name}.svg)" for name in _asked_figures()]
    return page(
        "Entropy through depth",
        [],
        "What can be told from the entropy after each layer of a language model? [The "
        "guide](../guide/lens.md) explains how entropy profiles are computed, and [the study's "
        "page](study_lens.md) has the command and the figures. "
        f"{sum(row[-1] == 'met' for row in aims)} of {len(aims)} targets are met. The paper "
        "(Caso, Ali, Irwin, Liò, arXiv 2502.16570) uses larger models; where its questions are "
        "the same as ours, its numbers are in the same table.",
        "## Targets",
        table("target|measured|n|verdict", aims),
        *(["## Further findings", "\n".join(beside)] if beside else []),
        *(["## Tables", *tables] if tables else []),
        *drawn,
        *_family(load),
        *_speed(load),
        lens_modules(load),
        *_missing(),
    )


def figures(load: Load) -> "dict[str, Figure]":
    """Those of the page, by the name of their file."""
    result = _asked_figures()
    if not _there(FAMILY):
        return result
    found = load(FAMILY)
    own = found["plane"]
    points = np.array(own["points"]["t-SNE"])
    for part, name in PLANES.items():
        labels = [str(row[part]) for row in found["networks"] for _ in range(own["samples"])]
        title = f"entropy profiles of samples by {part}, t-SNE"
        result[name] = profile_plane(points, labels, title=title)
    return result


def _asked_figures() -> "dict[str, Figure]":
    """Entropy by layer and AUC by features of the arms that ask a language model."""
    result = {}
    for variant in studies.read_studies(RESULTS).get(NAME, []):
        for name, figure in variant.study.figures(variant.measured).items():
            if name in {f"lens-{arm}-{kind}" for arm in ASKED for kind in ("profiles", "layers")}:
                result[name] = figure
    return result


def _alt(name: str) -> str:
    return name.removeprefix("lens-").replace("-", ", ")


def _there(name: str) -> bool:
    return (RESULTS / f"{name}.json").exists()


def _flat(load: Load) -> list[list[Any]]:
    """Class modules: from the first hidden layer on entropy tells no more."""
    if not _there(DIGITS):
        return []
    result = load(DIGITS)
    means = [row["auc_other"]["mean"] for row in result["layers"]]
    flat = max(means[1:]) - min(means[1:]) <= FLAT
    text = ", ".join(f"{mean:.3f}" for mean in means)
    aim = f"Class modules on digits: AUC rewarded/other is flat (within {FLAT}) from the first "
    return [[f"{aim}hidden layer on (input, hidden layers, logits)", text, result["seeds"],
             met(flat)]]  # fmt: skip


def _fast(load: Load) -> list[list[Any]]:
    if not _there(SPEED):
        return []
    result = load(SPEED)
    rows = []
    for own in result["rows"]:
        if own["way"] in ("all positions", "every 16th position", "last position"):
            aim = f"A profile costs at most {MOST} plain forward passes, {own['network']}: "
            rows.append([f"{aim}{own['way']}", own["ratio"], "-", met(own["ratio"] <= MOST)])
    return rows


def _speed(load: Load) -> list[str]:
    if not _there(SPEED):
        return []
    result = load(SPEED)
    rows = [
        [own["network"], own["way"], own["seconds"], own["ratio"], own.get("products", "-"),
         own.get("GiB", "-"), met(own["ratio"] <= MOST) if "products" in own else "-"]
        for own in result["rows"]
    ]  # fmt: skip
    head = "network|positions read|seconds|ratio to a plain pass|ratio of products|peak GiB"
    return [
        "## What a profile costs",
        f"{result['texts']:,} texts of {result['tokens']} tokens through {result['model']}, "
        f"{result['machine']}, {result['date']}, `{command(result)}`. A plain pass gives the "
        "logits at all positions. Products are multiplications by weights, without attention: "
        "with B products in the blocks, H in the head and L layers, a plain pass takes B + H per "
        "position, and a profile that reads one in s positions takes B + L H / s. SmolLM2-135M "
        "has B = 106 M, H = 28 M and L = 30, so reading all positions costs 7.1 plain passes, "
        "every 8th 1.6, every 16th 1.2 and the last of 64 0.9, however it is implemented: in a "
        f"single precision only the last two can stay below {MOST}. The paper's protocol reads "
        "only the last position, for each generated token.",
        table(f"{head}|at most {MOST} passes", rows),
    ]


def _family(load: Load) -> list[str]:
    if not _there(FAMILY):
        return []
    result = load(FAMILY)
    networks = result["networks"]
    rows = [
        [part, name, *(mean_sd(own[key], 3) for key in ("accuracy", "f1")),
         f"{result['chance'][part]:.3f}"]
        for part, scores in result["scores"].items()
        for name, own in scores.items()
    ]  # fmt: skip
    losses = [
        [form, depth, ", ".join(f"{n['loss']:.3f}" for n in networks
                                if (n["form"], n["depth"]) == (form, depth))]
        for form, depth in dict.fromkeys((n["form"], n["depth"]) for n in networks)
    ]  # fmt: skip
    seeds = len({own["seed"] for own in networks})
    return [
        "## Family and size",
        f"{len(networks)} networks trained here on the same {result['bytes'] / 1e6:.1f} MB of "
        f"text, {result['machine']}, {result['date']}, `{command(result)}`. Profiles of "
        f"{result['plane']['samples']} samples each are interpolated to {result['points']} "
        "points, so their length does not reveal the depth. A nearest-neighbour classifier learns "
        f"from all seeds but one and is tested on that one, each of {seeds} in turn: mean ± "
        "standard deviation over held-out seeds. For comparison, the number of layers alone, "
        "which no profile contains. The paper prints macro F1 97.99±0.66 for the family and "
        "96.31±0.87 for the size of 12 pretrained models, over folds of samples: there, each "
        "network is in both the training and the test folds.",
        table("predicted|features|accuracy|macro F1|chance", rows),
        "Loss on held-out bytes in nats, one value per seed:",
        table("form|layers|loss", losses),
        *(f"![Entropy profiles by {part}]({name}.svg)" for part, name in PLANES.items()),
    ]


def _missing() -> list[str]:
    arms = {
        str(cell.settings["arm"])
        for variant in studies.read_studies(RESULTS).get(NAME, [])
        for cell in variant.measured
    }
    known: Mapping[str, bool] = {
        **{f"{arm} on SmolLM2-135M": arm in arms for arm in (*ASKED, "correctness")},
        "family and size": _there(FAMILY),
        "what a profile costs on a GPU": _there(SPEED),
        **{f"class modules, {TITLES[part]}": _there(f"lens_modules_{part}") for part in PARTS},
    }
    left: Sequence[str] = [name for name, there in known.items() if not there]
    return ["## Not yet measured", f"{'; '.join(left)}."] if left else []
