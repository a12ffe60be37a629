"""The pages on the speed of training, and the README's lines on it."""

import textwrap
from collections.abc import Callable

from pages import Result, page, table


def training_cpu(load: Callable[[str], Result]) -> str:
    result, targets = load("training_cpu"), load("targets")["training_cpu"]
    ways, ratios = result["ways"], result["ratios"]
    about = {
        "usual": "a DataLoader over per-sample transforms with 4 workers, unfused Adam; "
        "training alone",
        "plain": "a loop on resident tensors, unfused Adam; the whole pruning run",
        "intarsia": "what `auto` chooses; the whole pruning run",
    }
    key = "seconds_per_module_epoch"
    times = {name: sorted(way.get(f"all_{key}", [way[key]])) for name, way in ways.items()}
    n = len(times["usual"])
    if not fair(result):
        about["usual"] += "; its workers were spawned"
    once = " Timed once, a ratio says little about the next run." if n == 1 else ""
    rows = [
        [
            f"`{name}`",
            about[name],
            way.get("engine", ""),
            way.get("modules", 1),
            f"{way[key]:.4g}",
            " to ".join(f"{s:.4g}" for s in (times[name][0], times[name][-1])[: min(n, 2)]),
            f"{ratios[f'{name}/intarsia']:.1f}" if f"{name}/intarsia" in ratios else "1",
            way["peak_MiB"],
            way["peak_MiB_of_a_worker"] or "",
        ]
        for name, way in ways.items()
    ]
    verdicts = " ".join(
        f"Against `{pair.partition('/')[0]}` it is {ratios[pair]:.1f} times as fast; the target of "
        f"{target} is {'met' if ratios[pair] >= target else 'missed'}."
        for pair, target in targets.items()
        if pair != "usual/intarsia" or fair(result)
    )
    spawned = (
        ""
        if fair(result)
        else " In this run its workers were spawned, not forked as in a script of its own, which "
        "adds seconds to the epoch: its ratio is too high, and no verdict rests on it."
    )
    return page(
        "Training on a CPU",
        [result],
        f"Run: {result['run']}. The three ways take turns in one call, each in a process of its "
        f"own; n = {n}, medians.",
        table(
            "way|how|engine|modules|s per module-epoch|least to most|times ours|peak MiB"
            "|peak MiB of a worker",
            rows,
        ),
        f"{verdicts} A module-epoch of `plain` and `intarsia` includes its share of validation and "
        "pruning, that of `usual` does not. The usual way runs more processes than there are "
        f"cores, and its time depends on what else they do.{once}{spawned} The peak memory is that "
        "of the main process, and of its largest worker where there are workers.",
    )


def fair(result: Result) -> bool:
    """Whether the usual way's workers were forked, as they are in a script of its own."""
    return result["ways"]["usual"].get("workers") == "forked"


def training_cuda(load: Callable[[str], Result]) -> str:
    result, target = load("training_cuda"), load("targets")["training_cuda"]
    cpu = load("training_cpu")
    usual = cpu["ways"]["usual"]["seconds_per_module_epoch"]
    stacks = [
        [
            row["modules"],
            row["engine"],
            f"{row['seconds']:.1f}",
            " + ".join(f"{s:.2f}" for s in row["seconds_of_rounds"]),
            f"{1000 * row['seconds_per_module_epoch']:.1f}",
            f"{row['dense_round_seconds']:.2f}",
            f"{row['floor_of_dense_round_seconds']:.2f}",
            f"{row['share_of_floor']:.0%}",
            row["peak_MiB"],
        ]
        for row in result["stacks"]
    ]
    engines = [
        [
            f"`{row['model']}`",
            f"{row['parameters']:,}",
            f"`{row['engine']}`",
            f"{row['training_seconds']:.2f}",
            row["peak_MiB"],
        ]
        for row in result["engines"]
    ]
    goal = next(row for row in result["stacks"] if row["modules"] == target["modules"])
    verdict = "met" if goal["seconds"] <= target["seconds"] else "missed"
    each = goal["seconds_per_module_epoch"]
    against = (
        f" The usual way on the CPU of [the other page](training_cpu.md) took {usual:.4g} s a "
        f"module-epoch, {usual / each:,.0f} times as much: a quotient of two machines and two "
        "runs, not of two programs."
        if fair(cpu)
        else ""
    )
    return page(
        "Training on a GPU",
        [result],
        f"Run: {result['run']}. The first column of seconds is the whole call of `train`, data, "
        "validation, pruning and modules included; then the epochs of each round.",
        table(
            "modules|engine|s|s of rounds|ms per module-epoch|s of a dense round|its floor, s"
            "|share of floor|peak MiB",
            stacks,
        ),
        f"{goal['modules']} modules take {goal['seconds']:.1f} s; the target of "
        f"{target['seconds']} s is {verdict}. The floor is the time in which the memory can read "
        "the weights once going forward, then read and write weights and Adam's two moments once "
        f"going back, at the {result['copy_bandwidth_TB_per_s']} TB/s of a large copy measured in "
        "the same run; its share is floor over time. One module leaves most of the GPU idle, and a "
        f"stack fills it.{against}",
        "## Engine by engine",
        "Ten modules, two epochs of one dense round, training alone; MNIST for the first two "
        "models, random colour pictures for the others. The automatic choice rests on these "
        "figures: stacks win for small networks, one module after another for large ones.",
        table("model|parameters|engine|s|peak MiB", engines),
    )


def speed(load: Callable[[str], Result]) -> str:
    """The README's lines."""
    cpu, cuda = load("training_cpu"), load("training_cuda")
    modules = load("targets")["training_cuda"]["modules"]
    stack = next(row for row in cuda["stacks"] if row["modules"] == modules)
    seconds, ratios = cpu["ways"]["intarsia"]["seconds_per_module_epoch"], cpu["ratios"]
    usual = (
        f" and {ratios['usual/intarsia']:.1f} times as fast as the usual way with a data loader"
        if fair(cpu)
        else ""
    )
    text = (
        f"Training {modules} shallow MNIST modules takes {stack['seconds']:.1f} s on one "
        f"{cuda['machine']} ({cuda['run'].partition(', ')[2]}). On a CPU with {cpu['machine']}, a "
        f"whole pruning run of {cpu['ways']['intarsia']['modules']} modules takes {seconds:.2f} s "
        "for each module and epoch: "
        f"{ratios['plain/intarsia']:.1f} times as fast as a plain loop on resident tensors{usual}, "
        "timed in the same run. The commands and all figures are in [GPU](docs/results/"
        "training_cuda.md) and [CPU](docs/results/training_cpu.md)."
    )
    return textwrap.fill(text, 119, break_on_hyphens=False, break_long_words=False)
