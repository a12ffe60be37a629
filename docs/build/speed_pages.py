"""The pages on speed and size: training, files, inlays, the studio; and what kills change."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from intarsia.studies.wording import listed, titled
from pages import RESULTS, Load, Result, met, origin, page, table

KINDS = ("median", "slowest")

# The other ways to train, the strictest first, and how each of them does it.
WAYS = {
    "expert": "what an expert would write: resident tensors, fused Adam, one process per core with "
    "one module each; the whole pruning run",
    "plain": "a loop on resident tensors, unfused Adam, one module on all cores; the whole pruning "
    "run",
    "usual": "a DataLoader with per-sample transforms and 4 workers, unfused Adam; training only",
    "intarsia": "what `auto` chooses; the whole pruning run",
}


def training_cpu(load: Load) -> str:
    result, targets = load("training_cpu"), load("targets")["training_cpu"]
    ways = {name: result["ways"][name] for name in WAYS if name in result["ways"]}
    ratios, key = result["ratios"], "seconds_per_module_epoch"
    about = WAYS if fair(result) else WAYS | {"usual": f"{WAYS['usual']}; its workers were spawned"}
    times = {name: sorted(way.get(f"all_{key}", [way[key]])) for name, way in ways.items()}
    n = len(times["usual"])
    once = " A ratio timed once says little about the next run." if n == 1 else ""
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
    told = [name for name in ways if f"{name}/intarsia" in ratios]
    verdicts = " ".join(
        _verdict(name, ratios[f"{name}/intarsia"], targets.get(f"{name}/intarsia"))
        for name in told
        if name != "usual" or fair(result)
    )
    spawned = (
        ""
        if fair(result)
        else " In this run its workers were spawned, not forked as in a script of its own, which "
        "adds seconds to the epoch: its ratio is too high, and no verdict is based on it."
    )
    missing = (
        ""
        if "expert" in ways
        else " Neither way is what an expert would write (resident tensors, fused Adam, one "
        "process per core), which was not timed in this run."
    )
    whole = [f"`{name}`" for name in ways if name != "usual"]
    return page(
        "Training on a CPU",
        [result],
        f"How much faster is `intarsia` on a CPU than other ways to train the same modules? "
        f"{verdicts}{missing}",
        f"Run: {result['run']}. The {COUNTS[len(ways)]} ways take turns in one call, each in its "
        f"own process; n = {n}, medians.",
        table(
            "way|how|engine|modules|seconds per module-epoch|range|ratio to `intarsia`|peak MiB"
            "|peak MiB of a worker",
            rows,
        ),
        f"A module-epoch of {', '.join(whole[:-1])} and {whole[-1]} includes its share of "
        "validation and pruning, that of `usual` does not. The usual way runs more processes than "
        f"there are cores, so its time depends on what else they are doing.{once}{spawned} Peak "
        "memory is that of the main process, and of its largest worker if it has any.",
    )


COUNTS = {2: "two", 3: "three", 4: "four"}


def _verdict(name: str, ratio: float, target: float | None) -> str:
    said = f"It is {ratio:.1f} times as fast as `{name}`"
    aim = f"; the target of {target} is {met(ratio >= target)}" if target is not None else ""
    return f"{said}{aim}."


def fair(result: Result) -> bool:
    """Whether the usual way's workers were forked, as they are in a script of its own."""
    return result["ways"]["usual"].get("workers") == "forked"


def training_cuda(load: Load) -> str:
    result, target = load("training_cuda"), load("targets")["training_cuda"]
    by_engine = load("training_cuda_engines")
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
        for row in by_engine["engines"]
    ]
    goal = next(row for row in result["stacks"] if row["modules"] == target["modules"])
    verdict = met(goal["seconds"] <= target["seconds"])
    ways, cpu = _cuda_ways(result, goal), load("training_cpu")
    usual = cpu["ways"]["usual"]["seconds_per_module_epoch"]
    against = (
        f" The usual way on the CPU of [the other page](training_cpu.md) took {usual:.4g} s per "
        f"module-epoch, {usual / goal['seconds_per_module_epoch']:,.0f} times as long: this "
        "compares two machines and two runs, not two programs."
        if fair(cpu)
        else ""
    )
    return page(
        "Training on a GPU",
        [result],
        f"How long does a bank of modules take to train on a GPU? {goal['modules']} modules take "
        f"{goal['seconds']:.1f} s in a process that has trained before; the target of "
        f"{target['seconds']} s is {verdict}.{_first_call(result)}",
        *ways,
        f"Run: {result['run']}. *Whole call* is the time of `train`, including data, validation, "
        "pruning and modules; *rounds* is the time of the epochs of each round.",
        table(
            "modules|engine|whole call, s|rounds, s|ms per module-epoch|a dense round, s|its "
            "floor, s|floor / time|peak MiB",
            stacks,
        ),
        "The floor is the time that memory needs to read the weights once in the forward pass, "
        "and to read and write the weights and Adam's two moments once in the backward pass, at "
        f"the {result['copy_bandwidth_TB_per_s']} TB/s of a large copy measured in the same run. "
        f"One module leaves most of the GPU idle; a stack of modules fills it better.{against}",
        "## Engine by engine",
        origin(by_engine),
        "Ten modules, two epochs of one dense round, training only; MNIST for the first two "
        "models, random colour images for the others. The automatic choice of engine is based on "
        "these numbers: stacks are faster for small networks, one module after another for large "
        "ones.",
        table("model|parameters|engine|seconds|peak MiB", engines),
    )


CONVOLUTIONS = {
    "eager": "an expert's loop, step by step, one module (`eager`)",
    "graph": "an expert's loop with its step as a CUDA graph, one module (`graph`)",
    "grouped": "`train`, layers of all modules side by side (`grouped`)",
    "grouped/torch": "the same without our own kernels",
    "streams": "`train`, modules on streams of one graph (`streams`)",
    "streams/torch": "the same without our own kernels",
    "compiled": "`train`, the first engine that fits, with torch.compile (`compiled`)",
    "single": "`train`, one module after another (`single`)",
}


def convolutions(load: Load) -> str:
    runs = [load("convolutions"), load("convolutions_wide")]
    result, targets = runs[0], load("targets")["convolutions"]
    rates = " and ".join(f"{run['teraflops_of_a_matrix_product']:g}" for run in runs)
    parts = [
        part
        for run in runs
        for model in dict.fromkeys(row["model"] for row in run["rows"])
        for part in _convolutions_of(model, run, targets)
    ]
    return page(
        "Training convolutional modules on a GPU",
        runs,
        "How long does a convolutional module take per epoch, by engine and against hand-written "
        f"loops? {result['samples']:,} random images of CIFAR's size, batch {result['batch']}; "
        "bytes resident on the device, where they are also cropped and flipped; products in bf16 "
        "with float32 weights, channels last, fused Adam. The hand-written loops do not validate, "
        "`train` does. The time is that of the fastest epoch after the first; the first is given "
        "together with all that precedes it. The floor is the time of the products alone at the "
        f"{rates} TFLOP/s of a large matrix product in bf16, measured in the same run.",
        "The fastest way to train several modules is, per module and epoch, "
        f"{'; '.join(filter(None, map(_fastest_bank, runs)))}.",
        *parts,
        *(_repeats(load("repeats")) if (RESULTS / "repeats.json").exists() else []),
    )


def _repeats(result: Result) -> list[str]:
    """Whether other processes train the same bytes, and how far they are apart where not."""
    head = "model|precision|engine|modules|epochs|runs|different bytes|weights apart|accuracy"
    rows = [
        [
            *(row[key] for key in ("model", "precision", "engine", "modules", "epochs", "runs")),
            "none" if row["distinct"] == 1 else f"{row['distinct']} of {row['runs']}",
            f"{row['distance']:.2g}",
            f"{row['accuracy']:.4f} ({row['sd']:.4f})",
        ]
        for row in result["rows"]
    ]
    return [
        "## Again, in another process",
        origin(result),
        "Does a process that trains the same modules again get the same bytes? Weights apart: the "
        "largest distance of a run's weights from those of the first, relative to their size; "
        "accuracy: of logits added on the test samples of "
        f"{titled(result['data'])}, mean (standard deviation) over the runs.",
        table(head, rows),
    ]


def _fastest_bank(run: Result) -> str:
    """How much faster the best way to train several modules is than `eager`, model by model."""
    key, words = "seconds_per_module_epoch", []
    for model in dict.fromkeys(row["model"] for row in run["rows"]):
        rows = [row for row in run["rows"] if row["model"] == model and key in row]
        bank = [row for row in rows if row["modules"] > 1]
        eager = next(row for row in rows if row["way"] == "eager")
        if bank:
            best = min(bank, key=lambda row: row[key])
            words.append(
                f"{eager[key] / best[key]:.1f} times as fast as `eager` for `{model}` "
                f"(`{best['way']}`, {best['modules']} modules)"
            )
    return "; ".join(words)


def _convolutions_of(model: str, result: Result, targets: Result) -> list[str]:
    rows = {row["way"]: row for row in result["rows"] if row["model"] == model}
    key = "seconds_per_module_epoch"
    timed = {way: row for way, row in rows.items() if key in row}
    eager = timed["eager"][key]
    shown = [
        [
            CONVOLUTIONS[way],
            row["modules"],
            f"{row[key]:.3f}",
            f"{eager / row[key]:.1f}",
            f"{row['floor'] / row[key]:.0%}",
            f"{row['first_epoch_and_start_seconds']:.1f}",
            row["peak_MiB"],
        ]
        for way, row in timed.items()
    ]
    head = "way|modules|seconds per module-epoch|speed-up over `eager`|floor / time"
    parts = [f"## {model}", table(f"{head}|start and first epoch, s|peak MiB", shown)]
    parts += [f"`{way}` {row['refused']}" for way, row in rows.items() if "refused" in row]
    bank = {way: row for way, row in timed.items() if row["modules"] > 1}
    if model not in targets or not bank:
        return parts
    aim, best = targets[model], min(bank, key=lambda way: bank[way][key])
    modules, seconds = bank[best]["modules"], bank[best][key]
    if "eager epochs" in aim:
        ratio = modules * seconds / eager
        parts.append(
            f"An epoch of {modules} modules takes {ratio:.2f} times as long as one of a single "
            f"module by `eager` (fastest: `{best}`); the target of at most {aim['eager epochs']} "
            f"times is {met(ratio <= aim['eager epochs'])}."
        )
    else:
        parts.append(
            f"A module trains {eager / seconds:.2f} times as fast as by `eager` (fastest: "
            f"`{best}`); the target of at least {aim['times eager']} times is "
            f"{met(eager / seconds >= aim['times eager'])}."
        )
    return parts


CUDA_WAYS = {
    "graph": "an expert's loop with its step as a CUDA graph",
    "expert": "an expert's loop, step by step",
}


def _cuda_ways(result: Result, goal: Result) -> list[str]:
    """One module after another on the same device, against the stack of the target."""
    if "ways" not in result:
        return []
    key = "seconds_per_module_epoch"
    ours = goal[key]
    rows = [
        [title, way["modules"], way["epochs"], f"{1000 * way[key]:.1f}", f"{way[key] / ours:.1f}"]
        for name, title in CUDA_WAYS.items()
        if (way := result["ways"].get(name))
    ]
    rows.append(["`train`", goal["modules"], "as below", f"{1000 * goal[key]:.1f}", "1"])
    return [
        "The loop that an expert would write keeps the samples on the device, uses the fused Adam "
        "and trains one module after another; the recipe, its steps and its pruning are the same. "
        "A few of its epochs were timed in a second run of the process and scaled to one:",
        table("way|modules|epochs timed|ms per module-epoch|ratio to `train`", rows),
    ]


def _first_call(result: Result) -> str:
    """How long the first call of a new process takes, where that was timed."""
    first = result.get("first_call")
    if not first:
        return ""
    return (
        " The first call of a new process, which starts the device and compiles its kernels, takes "
        f"{first['seconds']:.1f} s for {first['modules']} modules."
    )


def speed(load: Load) -> str:
    """Training in short, on a GPU and on a CPU."""
    cpu, cuda = load("training_cpu"), load("training_cuda")
    modules = load("targets")["training_cuda"]["modules"]
    stack = next(row for row in cuda["stacks"] if row["modules"] == modules)
    seconds, ratios = cpu["ways"]["intarsia"]["seconds_per_module_epoch"], cpu["ratios"]
    first = cuda.get("first_call")
    cold = f" ({first['seconds']:.1f} s in the first call of a new process)" if first else ""
    others = {
        "expert": "the loop that an expert would write (resident tensors, fused Adam, one process "
        "per core)",
        "plain": "a plain loop on resident tensors with unfused Adam",
        "usual": "the usual way with a data loader and 4 workers",
    }
    told = [
        f"{ratios[f'{name}/intarsia']:.1f} times as fast as {words}"
        for name, words in others.items()
        if f"{name}/intarsia" in ratios and (name != "usual" or fair(cpu))
    ]
    text = (
        f"Training {modules} shallow MNIST modules takes {stack['seconds']:.1f} s on one "
        f"{cuda['machine']} ({cuda['run'].partition(', ')[2]}) in a process that has trained "
        f"before{cold}.{_readme_cuda(cuda, stack)} On a CPU ({cpu['machine']}), a whole pruning "
        f"run of {cpu['ways']['intarsia']['modules']} modules takes {seconds:.2f} s per module and "
        f"epoch: {listed(told)}, all timed in the same run. See "
        "[GPU](training_cuda.md) and [CPU](training_cpu.md) for the "
        "commands and all numbers."
    )
    return textwrap.fill(text, 119, break_on_hyphens=False, break_long_words=False)


def _readme_cuda(cuda: Result, stack: Result) -> str:
    """The ratio to the fastest of an expert's loops on the same device, where they were timed."""
    if "ways" not in cuda:
        return ""
    key = "seconds_per_module_epoch"
    name = min(cuda["ways"], key=lambda way: cuda["ways"][way][key])
    ratio = cuda["ways"][name][key] / stack[key]
    return (
        f" This is {ratio:.1f} times as fast per module and epoch as {CUDA_WAYS[name]}, one module "
        "after another on the same GPU."
    )


def filesize(load: Load) -> str:
    result, target = load("filesize"), load("targets")["filesize"]["dense/sparse"]
    ratio, files = result["dense/sparse"], result["files"]
    rows = [
        [
            name,
            f"{row['density']:.2%}",
            f"{row['bytes']:,}",
            "yes" if row["same_logits"] else "NO",
            f"{row['samples']:,}",
        ]
        for name, row in files.items()
    ]
    same = all(row["same_logits"] for row in files.values())
    return page(
        "File size",
        [result],
        "How small is the file of a sparse module, and does it load to the same logits? One "
        f"module of {result['parameters']:,} parameters, unpruned after the first round and "
        "pruned after the last, is saved, loaded and evaluated on every test sample.",
        f"The sparse file is {ratio:.1f} times smaller than the dense one; the target of {target} "
        f"times is {met(ratio >= target)}. After loading, both give "
        f"{'bit for bit the same logits' if same else 'logits that are NOT the same'}.",
        table("module|density|bytes|same logits, bit for bit|samples", rows),
    )


def stream_merge(load: Load) -> str:
    result, target = load("stream_merge"), load("targets")["stream_merge"]["peak_GiB"]
    rows = [
        [
            f"`{row['method']}`",
            row["way"],
            f"{row['seconds']:.0f}",
            f"{row['cpu_seconds']:.0f}",
            f"{row['peak_MiB'] / 1024:.2f}",
            f"{row['peak_anonymous_MiB'] / 1024:.2f}",
        ]
        for row in result["rows"]
    ]
    verdicts = [
        f"With `{row['method']}` the peak is {row['peak_MiB'] / 1024:.2f} GiB (target of {target} "
        f"GiB: {met(row['peak_MiB'] / 1024 < target)})"
        + (f", at {_times(row, other)} times mergekit's CPU time." if other else ".")
        for row in result["rows"]
        if row["way"] == "intarsia"
        for other in [_of_mergekit(result["rows"], row["method"])]
    ]
    compared = [
        f"With `{row['method']}` the two results differ by at most "
        f"{row['largest_difference']:.1e}, and a fraction of {row['fraction_different']:.1e} of "
        "the entries by more than 1e-6."
        for row in result["rows"]
        if "largest_difference" in row
    ]
    models = COUNTS.get(result["models"], result["models"])
    peaks = {
        way: max(row["peak_MiB"] for row in result["rows"] if row["way"] == way) / 1024
        for way in dict.fromkeys(row["way"] for row in result["rows"])
    }
    peak = " and ".join(f"{gib:.2f} GiB with {way}" for way, gib in peaks.items())
    return page(
        "Files merged tensor by tensor",
        [result],
        "How much memory and time does it take to merge files tensor by tensor, compared with "
        f"mergekit? A base and {models} models of {result['gigabytes_of_a_model']:.2f} GB each, "
        f"in float32 and in shards: the tensors of a Llama with {result['layers']} layers, filled "
        f"with random numbers. The largest tensor takes {result['largest_tensor_MB']:.0f} MB. "
        "Each way merges them from the same recipe in its own process; threads: "
        f"{result['threads']}; n = 1. Other programs were running, so CPU seconds say more than "
        "elapsed seconds.",
        f"The largest peak of memory is {peak}.",
        table(
            "method|program|elapsed seconds|CPU seconds|peak GiB|peak GiB not mapped from files",
            rows,
        ),
        " ".join([*verdicts, *compared]),
        "intarsia computes in float64, and its time includes digests of what it writes and a "
        "check that everything read is finite. mergekit computes in float32 and maps its files; "
        "mapped pages count towards its peak while they are in memory, but the system can reclaim "
        f"them. intarsia maps no files, and ran under a limit of {result['limit_GiB']:g} GiB on "
        "the memory that it may ask for (`RLIMIT_DATA`). Tensors are joined piece by piece; "
        "`slerp` reads them twice and `ties` with a trim three or four times, from the system's "
        "cache if that has room for the largest tensor of all models, otherwise from disk. `tsvm` "
        "and `iso_c`, which decompose whole matrices, need several copies of the largest tensor "
        "in float64 and are not measured here.",
    )


def _of_mergekit(rows: Sequence[Mapping[str, Any]], method: str) -> Mapping[str, Any] | None:
    theirs = (r for r in rows if r["method"] == method and r["way"] == "mergekit")
    return next(theirs, None)


def _times(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    return f"{ours['cpu_seconds'] / theirs['cpu_seconds']:.2f}"


INLAY_INTRO = """How small and how fast are ten sparse modules as one network? The inlay of all \
modules of a bank is compacted, written by `Module.save` and run as `sparse` builds it. It is \
compared with the unpruned network of the modules' own shape (dense), with the inlay run with \
dense layers, and with the modules joined by `logits`, each with its own network. The ways take \
turns; times are medians over the repetitions, in microseconds per call."""


def inlay(load: Load) -> str:
    result, target = load("inlay"), load("targets")["inlay"]
    parts = [part for row in result["rows"] for part in _inlay_model(row, target)]
    smaller = [row["bytes dense/inlay"] for row in result["rows"]]
    single = [o["dense/inlay"] for row in result["rows"] for o in row["latency"] if o["batch"] == 1]
    short = (
        f"The inlay is {min(smaller):.1f} to {max(smaller):.1f} times smaller on disk than the "
        f"dense network, which at batch 1 takes {min(single):.2f} to {max(single):.2f} times as "
        "long."
    )
    return page("What an inlay costs", [result], INLAY_INTRO, short, *parts)


def _inlay_model(row: Result, target: Result) -> Iterator[str]:
    yield f"## {row['model'].replace('[', '(').replace(']', ')')}"
    units = ", ".join(f"{axis} {count}" for axis, count in row["widths"].items())
    yield (
        f"{row['modules']} modules of density {row['density_of_modules']:.2%}; hidden units of the "
        f"inlay: {units}. Its logits differ from the sum of the modules' by at most "
        f"{row['off_the_logit_sum']:.1g} of the largest."
    )
    files = row["files"]
    yield table(
        "network|bytes on disk|nonzero parameters",
        [[name, f"{own['bytes']:,}", f"{own['nonzero']:,}"] for name, own in files.items()],
    )
    ways = list(row["latency"][0]["median_us"])
    yield table(
        f"threads|batch|repetitions|{'|'.join(f'{way}, µs' for way in ways)}|dense / inlay",
        [
            [
                own["threads"],
                own["batch"],
                own["repetitions"],
                *(f"{own['median_us'][way]:,.0f}" for way in ways),
                f"{own['dense/inlay']:.2f}",
            ]
            for own in row["latency"]
        ],
    )
    yield _inlay_in_words(row, target)


def _inlay_in_words(row: Result, target: Result) -> str:
    smaller = row["bytes dense/inlay"]
    single = [own["dense/inlay"] for own in row["latency"] if own["batch"] == 1]
    many = [own for own in row["latency"] if own["batch"] != 1]
    large = ", ".join(
        f"{1 / own['dense/inlay']:.2f} times the dense network's time on {own['threads']} "
        f"thread{'s' if own['threads'] > 1 else ''}"
        for own in many
    )
    return (
        f"The inlay is {smaller:.1f} times smaller on disk than the dense network; the target of "
        f"{target['smaller']:g} is {met(smaller >= target['smaller'])}. At batch 1 the dense "
        f"network takes {min(single):.2f} to {max(single):.2f} times as long as the inlay; the "
        f"target that the inlay is not slower is {met(min(single) >= target['batch 1'])}. At batch "
        f"{many[0]['batch']} the inlay takes {large}."
    )


CONV_INLAY_INTRO = (
    "What does it cost to run convolutional modules side by side, and to take one out? Between "
    "hidden channels an inlay is block diagonal. `compose` runs its blocks as separate "
    "convolutions: in groups if all modules have equally many channels, otherwise one after "
    "another. It is compared in one run with the same blocks always run one by one; with its state "
    "as one network, zeros included (`block diagonal`); with the modules as separate networks "
    "whose logits are added (`logits`); and with one network that may be as large as all of them "
    "(`joint`). Weights are the initial ones, on which the time does not depend. A module with "
    "channels of several sizes lacks up to three tenths of them, chosen at random: there the inlay "
    "also runs one by one, and the difference between the two columns is noise. *Numbers held* are "
    "those that a network keeps in memory."
)


def conv_inlay(load: Load) -> str:
    names = ["conv_inlay", "conv_inlay_cuda"]
    results = [load(name) for name in names if (RESULTS / f"{name}.json").exists()]
    parts = [CONV_INLAY_INTRO, *map(_conv_inlay_in_short, results)]
    for result in results:
        where = "a GPU" if "--device cuda" in result["command"] else "a CPU"
        parts.append(f"## On {where}, {result['precision']}")
        parts += [part for row in result["rows"] for part in _conv_inlay_row(row)]
        if "removal" in result:
            parts += _conv_removal(result["removal"])
    return page("Convolutional inlays", results, *parts)


def _conv_inlay_in_short(result: Result) -> str:
    """The time of modules as separate networks, and of one joint network, over the inlay's."""
    ratios = [own["over_inlay"] for row in result["rows"] for own in row["latency"]]
    logits, joint = ([own[way] for own in ratios] for way in ("logits", "joint"))
    return (
        f"On {result['machine']}, separate networks take {min(logits):.2f} to {max(logits):.2f} "
        f"times as long as the inlay, and one joint network {min(joint):.2f} to {max(joint):.2f} "
        "times as long."
    )


def _conv_inlay_row(row: Result) -> Iterator[str]:
    ways = list(row["numbers"])
    yield (
        f"**{row['modules']} modules of `{row['model']}`, channels {row['channels']}**, compared "
        f"with `{row['joint']}`; {row['grouped_layers']} of {row['block_layers']} layers of blocks "
        "run in groups. Logits differ from the sum of the modules' logits by at most "
        f"{row['off_the_logit_sum']:.1g} of the largest."
    )
    yield table(
        f"measured|{'|'.join(ways)}",
        [
            ["numbers held", *(f"{row['numbers'][way]:,}" for way in ways)],
            *(
                [
                    f"batch {own['batch']}, ms (ratio to inlay)",
                    *(f"{own['median_ms'][w]:.4g} ({own['over_inlay'][w]:.2f})" for w in ways),
                ]
                for own in row["latency"]
            ),
        ],
    )


def _conv_removal(rows: Sequence[Result]) -> Iterator[str]:
    yield "Each module in turn is removed from an inlay of trained modules:"
    yield table(
        "model|data|rows|epochs|modules|training the others, s|removing one, s|ratio"
        "|others unchanged, bit for bit",
        [
            [
                f"`{row['model']}`",
                row["data"],
                f"{row['rows']:,}",
                row["epochs"],
                row["modules"],
                f"{row['retraining_seconds']:.4g}",
                f"{row['removal_seconds']:.4g}",
                f"{row['retraining_seconds'] / row['removal_seconds']:,.0f}",
                row["others_bit_identical"],
            ]
            for row in rows
        ],
    )
    yield (
        "The time to train the others is their share of one call of `train`. It grows with rows "
        "and epochs; the time of a removal does not."
    )


def studio(load: Load) -> str:
    result, target = load("studio"), load("targets")["studio"]["seconds"]
    rows = [
        [
            row["operator"],
            f"{row['median']:.3f}",
            f"{row['worst']:.3f}",
            f"{row['within_limit']} of {row['of']}",
            f"{row['again']:.3f}",
            f"{row['first']:.2f}",
        ]
        for row in result["rows"]
    ]
    missed = [row["operator"] for row in result["rows"] if row["worst"] >= target]
    verdict = f"missed with {', '.join(missed)}" if missed else "met by every switch timed"
    return page(
        "The studio",
        [result],
        "How long does the studio take to answer when a module is switched on or off? The target "
        f"of {target:g} s per switch is {verdict}. `intarsia studio` serves {result['modules']} "
        f"modules ({result['model']}, {result['data']}, all test samples) and is queried over "
        "HTTP as its page does. A switch is timed from the request to the last byte of the "
        "answer, which contains the confusion matrix, accuracy, entropy, and every module's "
        "answer to one sample; drawing in the browser is not included. Each switch selects a set "
        "of modules that was not requested before.",
        table(
            f"operator|switch, median s|slowest s|under {target:g} s|switched back, median s"
            "|first answer, s",
            rows,
        ),
        "An operator's first answer, for which it may have to look at samples, is listed "
        f"separately. The page was available after {result['seconds_to_start']:.1f} s.",
        _studio_load(load("studio_load")),
    )


def _studio_load(result: Result) -> str:
    """The section on a crowd of clients, and on connections that are never finished."""
    crowd, waiting = result["crowd_and_half_open"], result["half_open"]
    limits, streams, apart = result["limits"], result["streams"], result["visitors"]
    runs = {
        "one client after another": result["alone"],
        "all at once": result["crowd"],
        "all at once, half-open connections before them": crowd,
    }
    times = [
        [
            name,
            f"{run['answered']} of {run['clients']}",
            *(f"{run[key][kind]:.2f}" for key in ("page", "first", "switch") for kind in KINDS),
        ]
        for name, run in runs.items()
    ]
    closed = [
        [
            row["kind"],
            f"{row['closed']} of {row['opened']}",
            *(f"{row[key]:.1f}" for key in ("median_seconds", "slowest_seconds")),
        ]
        for row in waiting
    ]
    own = f"{apart['own_answers']} of {apart['of']} visitors"
    third = "saw one of them" if apart["a_third_sees_it"] else "saw neither"
    return "\n\n".join(
        [
            "## A crowd, and connections that are never finished",
            origin(result),
            f"{result['modules']} modules ({result['data']}, {result['operator']}) are served, "
            f"and {sum(row['opened'] for row in waiting)} connections are opened that never "
            f"finish their request. Then {crowd['clients']} clients arrive at the same moment. "
            "Each loads the page, opens its stream of events, requests what the page shows first, "
            "and then a switch that was not requested before. Seconds are from the connection to "
            "the last byte of the answer, while all other clients are waiting too. Other programs "
            f"were running: the load average was {result['load_before']:.0f} before it began. The "
            f"studio used {result['server_cpu_seconds']:.0f} s of CPU time in total.",
            table(
                "clients|answered|page, median s|slowest s|first answer, median s|slowest s"
                "|switch, median s|slowest s",
                times,
            ),
            "A connection is closed if its headers are not complete after "
            f"{limits['header_seconds']:g} s, or its body after {limits['body_seconds']:g} s plus "
            "an allowance for its length.",
            table("half-open connection sends|closed|median s|slowest s", closed),
            f"Of {streams['opened']} event streams, {streams['open_at_the_end']} were open when "
            "the last of these connections was closed. Two visitors loaded different modules "
            f"under the same name: {own} got the numbers for their own, and a third {third}.",
        ]
    )


KILLS_MORE = ("kills_convolutions", "kills_cuda", "kills_convolutions_cuda")  # where measured


def kills(load: Load) -> str:
    """What kills and flipped bits change, on the CPU and, once it was measured, on a GPU."""
    more = [name for name in KILLS_MORE if (RESULTS / f"{name}.json").exists()]
    results = [load(name) for name in ("kills", *more)]
    cases = [(result, row) for result in results for row in result["cases"]]
    flips = [row for result in results for row in result["flips"]]
    target = load("targets")["kills"]
    hit, operations = _operations_hit(cases)
    done, flipped = sum(r["kills"] for r in results), sum(row["count"] for row in flips)
    held = all(r["equal"] for r in results) and not any(_is_bad(row) for row in flips)
    enough = done >= target["kills"] and flipped >= target["flips"]
    return page(
        "Kills and flipped bits",
        results,
        "Does a run that is killed again and again end with the same bytes, and what does a "
        f"flipped bit do? {_kills_in_short(cases, flips)} Four modules are trained into a folder, "
        "in two chunks, with a checkpoint after every epoch. The process is killed at random "
        "moments by KILL, TERM and HUP in turn, or by KILL just before a file operation (opening "
        "a file for writing, syncing, linking, renaming or removing it, making or removing a "
        "folder); the same call resumes the run, until it finishes. Then every file is compared "
        "with that of an undisturbed run. `grouped` and `streams` train by SGD on "
        "augmented images in balanced batches. In total this took "
        f"{sum(r['seconds'] for r in results):.0f} s.",
        table(
            "device|engine|model|recipe|locks|kills at random moments|kills before a file operation"
            "|runs|files|same bytes",
            [_case(result, row) for result, row in cases],
        ),
        f"A run that locks by flock has {operations} file operations; kills came before {hit} of "
        "them, each on at least one of the engines.",
        "## Flipped bits",
        "One bit of one file is flipped, at a random position, in the folder of a run that was "
        "killed or has finished, and the same call is made again.",
        table("bit flipped in|outcome|flips", _summed(flips)),
        f"The target is {target['kills']} kills and {target['flips']} flips, none of which may "
        f"change a module silently. There were {done} kills and {flipped} flips: "
        f"{met(held and enough)}.",
    )


def _kills_in_short(cases: Sequence[tuple[Result, Result]], flips: Sequence[Result]) -> str:
    """How many cases ended with the same bytes, and how many flips went unnoticed."""
    same = sum(bool(row["equal"]) for _, row in cases)
    silent = sum(row["count"] for row in flips if _is_bad(row))
    return (
        f"{same} of {len(cases)} cases below end with the same bytes, and {silent} of "
        f"{sum(row['count'] for row in flips)} flips change a module silently."
    )


def _case(result: Result, row: Result) -> list[object]:
    before = row["by"].get("operation", 0)
    return [
        result["device"].upper(),
        row["engine"],
        row["model"],
        row["recipe"],
        row["locks"],
        row["kills"] - before,
        before,
        row["runs"],
        row["files"],
        "yes" if row["equal"] else "NO: " + ", ".join(row["differing"]),
    ]


def _operations_hit(cases: Sequence[tuple[Result, Result]]) -> tuple[int, int]:
    """How many operations of a run with flock on the CPU were hit, and how many it has."""
    rows = [r for result, r in cases if (result["device"], r["locks"]) == ("cpu", "flock")]
    operations = rows[0]["operations"]
    alike = [row for row in rows if row["operations"] == operations]
    return len({place for row in alike for place in row["hit"]}), operations


def _summed(flips: Sequence[Result]) -> list[list[object]]:
    counts: dict[tuple[str, str], int] = {}
    for row in flips:
        key = (row["what"], row["outcome"])
        counts[key] = counts.get(key, 0) + row["count"]
    return [[what, outcome, count] for (what, outcome), count in counts.items()]


def _is_bad(row: Result) -> bool:
    """Whether a flip had an outcome that it may not have: those are written in capitals."""
    return bool(row["outcome"][:5].isupper())
