"""The page on fresh heads: whether both protocols agree, and how much faster the cached one is."""

from typing import Any

from intarsia.measure import Contract
from pages import Load, data_title, met, page, table

POINTS, TIMES = 0.5, 20  # what was aimed at


def fresh_head(load: Load) -> str:
    result = load("fresh_head")
    probes = result["probes"]
    first = probes["cached"]
    samples = first["samples"]
    contract = Contract(**first["contract"])
    title = data_title(result["data"])
    return page(
        "Fresh heads",
        [result],
        "Do the cached and the literal protocol for fresh heads agree, and how much time does "
        f"caching save? They differ by at most {result['points_apart']:g} points, and the cached "
        f"protocol is {result['ratio']:.1f} times as fast with {result['seeds']} seeds. Two "
        f"`{result['model']}` networks with the same initial weights, each trained on half of the "
        f"classes of {title}, are averaged and [probed](../guide/probe.md) by both protocols: "
        f"{samples['train']:,} training, {samples['validation']:,} validation and "
        f"{samples['test']:,} test samples, {first['training']['epochs']} epochs per head. Mean ± "
        "standard deviation over the seeds of the heads; native and joint are one network each.",
        table("protocol|native|fresh|joint|recovered fraction|n", [*map(_row, probes.items())]),
        contract.markdown(),
        "## Agreement",
        f"Seed by seed, the two protocols differ by at most {result['points_apart']:g} points; the "
        f"target of at most {POINTS:g} is {met(result['points_apart'] <= POINTS)}.",
        "## Time",
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


def _row(item: tuple[str, dict[str, Any]]) -> list[str]:
    protocol, probe = item
    scores = [_score(probe[name]) for name in ("native", "fresh", "joint", "recovered")]
    return [protocol, *scores, str(probe["fresh"]["n"])]


def _score(score: dict[str, Any]) -> str:
    spread = "" if score["sd"] is None else f" ± {score['sd']:.4f}"
    return f"{score['mean']:.4f}{spread}"


def _times(heads: int, seconds: dict[str, float], ratio: float) -> list[str]:
    return [str(heads), f"{seconds['literal']:.1f}", f"{seconds['cached']:.2f}", f"{ratio:.1f}"]
