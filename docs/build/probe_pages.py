"""The page on fresh heads: what they recover of merges, in short, and whether protocols agree."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from intarsia.measure import Contract
from intarsia.studies import Claim, Measured
from intarsia.studies.fresh_head.printed_tables import printed_fresh_heads
from intarsia.studies.fresh_head.readout_of_experts import recoveries, tables_in_short
from intarsia.studies.tables import grouped
from intarsia.studies.wording import titled
from pages import RESULTS, Load, data_title, met, origin, page, table
from studies import read_studies, tables_markdown, verdicts_of

MARKS = {True: "✓", False: "✗", None: "-"}
POINTS, TIMES = 0.5, 20  # what was aimed at
SEEDS = {"ward": 3, "random": 2}  # likewise, of each network
EXPERTS, ROUTING, MODULES = "fresh_head", "geometry", "readout_of_modules"
LINKS = {
    EXPERTS: "[All tables and findings](study_fresh_head.md)",
    ROUTING: "[All routers](study_geometry.md)",
    MODULES: "[All merges and references](study_readout_of_modules.md)",
}


def fresh_head(load: Load) -> str:
    result = load("fresh_head")
    probes = result["probes"]
    first = probes["cached"]
    samples = first["samples"]
    contract = Contract(**first["contract"])
    title = data_title(result["data"])
    return page(
        "Fresh heads",
        [],
        "What part of a merge's shortfall does a new readout recover, does it pay to route inputs "
        "to experts instead of merging them, and do the two protocols of the "
        "[probe](../guide/probe.md) agree? Studies answer the first two, and their pages have all "
        "numbers; the third is measured below.",
        contract.markdown(),
        *_studies(),
        "## Cached and literal protocol",
        origin(result),
        "Do the cached and the literal protocol for fresh heads agree, and how much time does "
        f"caching save? They differ by at most {result['points_apart']:g} points, and the cached "
        f"protocol is {result['ratio']:.1f} times as fast with {result['seeds']} seeds. Two "
        f"`{result['model']}` networks with the same initial weights, each trained on half of the "
        f"classes of {title}, are averaged and [probed](../guide/probe.md) by both protocols: "
        f"{samples['train']:,} training, {samples['validation']:,} validation and "
        f"{samples['test']:,} test samples, {first['training']['epochs']} epochs per head. Mean ± "
        "standard deviation over the seeds of the heads; native and joint are one network each.",
        table("protocol|native|fresh|joint|recovered fraction|n", [*map(_row, probes.items())]),
        "### Agreement",
        f"Seed by seed, the two protocols differ by at most {result['points_apart']:g} points; the "
        f"target of at most {POINTS:g} is {met(result['points_apart'] <= POINTS)}.",
        "### Time",
        "CPU seconds on one thread, both protocols in the same run. Cached features serve all "
        "seeds, so the ratio grows with their number.",
        table(
            "heads|literal, s|cached, s|ratio",
            [
                _times(result["seeds"], result["seconds"], result["ratio"]),
                _times(1, result["seconds_of_one"], result["ratio_of_one"]),
            ],
        ),
        f"The target, a ratio of at least {TIMES}, is {met(result['ratio'] >= TIMES)} with "
        f"{result['seeds']} seeds, as many as the paper's Ward partitions have, and "
        f"{met(result['ratio_of_one'] >= TIMES)} with one seed: the literal protocol goes through "
        f"the training and validation samples {first['training']['epochs']} times and the cached "
        "one through all samples once.",
    )


def _studies() -> Iterator[str]:
    """What the three studies found, out of their archives, each with the page that has it all."""
    archives = read_studies(RESULTS)
    there = {name: archives[name] for name in LINKS if name in archives}
    claims = {name: verdict.claims for name, verdict in verdicts_of(there).items()}
    cells = [cell for variant in there.get(EXPERTS, ()) for cell in variant.measured]
    if EXPERTS in there:
        yield "## Merged experts"
        yield (
            "Experts fine-tuned from one pretrained base, each on its own task, merged by task "
            "arithmetic or TIES with settings chosen on validation samples, and with recomputed "
            "BatchNorm statistics where a network has any. Joint is one network fine-tuned on all "
            "tasks. EfficientNet-Lite0 has ImageNet weights, and its experts learn all classes; "
            "the other bases are pretrained on some of the classes, and experts learn the rest. "
            f"{LINKS[EXPERTS]}, with averaged statistics and the joint network's own fresh head, "
            "are on the study's page."
        )
        counted = [claim for claim in claims[EXPERTS] if "cells" in claim.short]
        yield "\n".join(f"- {claim.marked}" for claim in counted)
        yield table("network|ward tasks, seeds|random tasks, draws|target", _seeds(cells))
        yield from tables_markdown(tables_in_short(cells))
        yield "The paper's numbers are of other backbones, to compare directions with:"
        yield from tables_markdown([printed_fresh_heads()])
    if ROUTING in there:
        yield "## Routing to experts"
        yield (
            "The same experts, consulted instead of merged. Differences of accuracy are positive "
            "where the first is better. The claims are that centroids are above the ensemble on "
            "ward tasks and by more than on random ones, and that entropy is above centroids on "
            f"both: ✓ where that is significant. {LINKS[ROUTING]}, with the tests, are on the "
            "study's page."
        )
        yield "\n".join(f"- {claim.marked}" for claim in claims[ROUTING] if claim.short)
        yield _routing(claims[ROUTING])
    if MODULES in there:
        yield "## Joined modules"
        yield (
            "Maximum-entropy modules of one class each, joined in the weights of one network. "
            f"{LINKS[MODULES]} are on the study's page."
        )
        counted = [claim for claim in claims[MODULES] if "in short" in claim.text]
        yield "\n".join(f"- {claim.marked}" for claim in counted)


def _seeds(cells: Sequence[Measured]) -> Iterator[list[str]]:
    """How many seeds every network was measured with, and whether that is what was aimed at.

    Random tasks count by their draws: each seed has its own, but one of a given number is one.
    """
    aims = ", ".join(f"{least} on {partition} tasks" for partition, least in SEEDS.items())
    for (data, model), group in grouped(cells, "data", "model").items():
        fewest: dict[str, int] = {}
        for (partition, *_), own in recoveries(group).items():
            fewest[partition] = min(fewest.get(partition, len(own.native)), len(own.native))
        drawn = [n if name == "random" else 1 for name, n in fewest.items() if name != "ward"]
        counts = {"ward": fewest.get("ward", 0), "random": sum(drawn)}
        enough = all(counts[partition] >= least for partition, least in SEEDS.items())
        network = f"{titled(data)}, {model}"
        yield [network, *map(str, counts.values()), f"at least {aims}: {met(enough)}"]


def _routing(claims: Sequence[Claim]) -> str:
    """Both questions about routers, network by network and way by way."""
    rows: dict[str, list[str]] = {}
    for claim in claims:
        if not claim.short:
            network, _, _ = claim.text.partition(":")
            rows.setdefault(network, [network]).extend(_differences(claim.evidence, claim.holds))
    head = "network, experts trained by|centroids - ensemble: ward|random|holds"
    return table(f"{head}|entropy - centroids: ward|random|holds", rows.values())


def _differences(evidence: Mapping[str, float], holds: bool | None) -> list[str]:
    """Under Ward, then under every other partition."""
    ward = [f"{value:+.3f}" for name, value in evidence.items() if name == "ward"]
    others = [f"{value:+.3f}" for name, value in evidence.items() if name != "ward"]
    return [", ".join(own) or "-" for own in (ward, others)] + [MARKS[holds]]


def _row(item: tuple[str, dict[str, Any]]) -> list[str]:
    protocol, probe = item
    scores = [_score(probe[name]) for name in ("native", "fresh", "joint", "recovered")]
    return [protocol, *scores, str(probe["fresh"]["n"])]


def _score(score: dict[str, Any]) -> str:
    spread = "" if score["sd"] is None else f" ± {score['sd']:.4f}"
    return f"{score['mean']:.4f}{spread}"


def _times(heads: int, seconds: dict[str, float], ratio: float) -> list[str]:
    return [str(heads), f"{seconds['literal']:.1f}", f"{seconds['cached']:.2f}", f"{ratio:.1f}"]
