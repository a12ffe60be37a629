"""The pages on speed and size: training, files, inlays, the studio; and what kills change."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from intarsia.studies.wording import listed
from pages import RESULTS, Load, Result, met, origin, page, table

KINDS = ("median", "slowest")

# The other ways to train, the strictest first, and how each of them does it.
WAYS = {
    "expert": "what an expert would write: resident tensors, fused Adam, a process per core with a "
    "module each; the whole pruning run",
    "plain": "a loop on resident tensors, unfused Adam, one module on all cores; the whole pruning "
    "run",
    "usual": "a DataLoader over per-sample transforms with 4 workers, unfused Adam; training alone",
    "intarsia": "what `auto` chooses; the whole pruning run",
}


def training_cpu(load: Load) -> str:
    result, targets = load("training_cpu"), load("targets")["training_cpu"]
    ways = {name: result["ways"][name] for name in WAYS if name in result["ways"]}
    ratios, key = result["ratios"], "seconds_per_module_epoch"
    about = WAYS if fair(result) else WAYS | {"usual": f"{WAYS['usual']}; its workers were spawned"}
    times = {name: sorted(way.get(f"all_{key}", [way[key]])) for name, way in ways.items()}
    n = len(times["usual"])
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
        "adds seconds to the epoch: its ratio is too high, and no verdict rests on it."
    )
    missing = (
        ""
        if "expert" in ways
        else " Neither way is what an expert would write: resident tensors, fused Adam, a process "
        "per core. That one was not timed in this run."
    )
    whole = [f"`{name}`" for name in ways if name != "usual"]
    return page(
        "Training on a CPU",
        [result],
        f"Run: {result['run']}. The {COUNTS[len(ways)]} ways take turns in one call, each in a "
        f"process of its own; n = {n}, medians.",
        table(
            "way|how|engine|modules|s per module-epoch|least to most|times ours|peak MiB"
            "|peak MiB of a worker",
            rows,
        ),
        f"{verdicts}{missing} A module-epoch of {', '.join(whole[:-1])} and {whole[-1]} includes "
        "its part of validation and pruning, that of `usual` does not. The usual way runs more "
        f"processes than there are cores, and its time depends on what else they do.{once}{spawned}"
        " The peak memory is that of the main process, and of its largest worker where there are "
        "workers.",
    )


COUNTS = {2: "two", 3: "three", 4: "four"}


def _verdict(name: str, ratio: float, target: float | None) -> str:
    said = f"Against `{name}` it is {ratio:.1f} times as fast"
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
        f" The usual way on the CPU of [the other page](training_cpu.md) took {usual:.4g} s a "
        f"module-epoch, {usual / goal['seconds_per_module_epoch']:,.0f} times as much: a quotient "
        "of two machines and two runs, not of two programs."
        if fair(cpu)
        else ""
    )
    return page(
        "Training on a GPU",
        [result],
        *ways,
        f"Run: {result['run']}. The first column of seconds is the whole call of `train`, data, "
        "validation, pruning and modules included; then the epochs of each round.",
        table(
            "modules|engine|s|s of rounds|ms per module-epoch|s of a dense round|its floor, s"
            "|fraction of floor|peak MiB",
            stacks,
        ),
        f"{goal['modules']} modules take {goal['seconds']:.1f} s in a process that has trained "
        f"before; the target of {target['seconds']} s is {verdict}."
        f"{_first_call(result)} The floor is the time in which the memory can read "
        "the weights once going forward, then read and write weights and Adam's two moments once "
        f"going back, at the {result['copy_bandwidth_TB_per_s']} TB/s of a large copy measured in "
        "the same run; that fraction is floor over time. One module leaves most of the GPU idle, "
        f"and a stack fills it.{against}",
        "## Engine by engine",
        origin(by_engine),
        "Ten modules, two epochs of one dense round, training alone; MNIST for the first two "
        "models, random colour pictures for the others. The automatic choice rests on these "
        "numbers: stacks win for small networks, one module after another for large ones.",
        table("model|parameters|engine|s|peak MiB", engines),
    )


CONVOLUTIONS = {
    "eager": "an expert's loop, step by step, one module",
    "graph": "an expert's loop with its step as a CUDA graph, one module",
    "grouped": "`train`, layers of all modules side by side",
    "grouped/torch": "the same without kernels of our own",
    "streams": "`train`, modules on streams of one graph",
    "streams/torch": "the same without kernels of our own",
    "compiled": "`train`, as the first that fits, with torch.compile",
    "single": "`train`, one module after another",
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
        f"Random pictures of CIFAR's size, {result['samples']:,} of them, batch {result['batch']}, "
        "bytes resident on the device, crops and flips there too, products in bf16 over float32 "
        "weights, channels last, fused Adam. Loops by hand do not validate, `train` does. Timed is "
        "the fastest of the epochs after the first; the first one is given with all that comes "
        "before it. The floor is the time of the products alone at the "
        f"{rates} TFLOP/s of a large matrix product in bf16, measured in the same run.",
        *parts,
    )


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
    head = "way|modules|s per module-epoch|times as fast as eager|fraction of floor"
    parts = [f"## {model}", table(f"{head}|first epoch and start, s|peak MiB", shown)]
    parts += [f"`{way}` {row['refused']}" for way, row in rows.items() if "refused" in row]
    bank = {way: row for way, row in timed.items() if row["modules"] > 1}
    if model not in targets or not bank:
        return parts
    aim, best = targets[model], min(bank, key=lambda way: bank[way][key])
    modules, seconds = bank[best]["modules"], bank[best][key]
    if "eager epochs" in aim:
        ratio = modules * seconds / eager
        parts.append(
            f"{modules} modules take {ratio:.2f} times as long for an epoch as one eager module "
            f"(`{best}`); at most {aim['eager epochs']} times was aimed at: "
            f"{met(ratio <= aim['eager epochs'])}."
        )
    else:
        parts.append(
            f"A module takes 1/{eager / seconds:.2f} of the eager time (`{best}`); at least "
            f"{aim['times eager']} times as fast was aimed at: "
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
        "What an expert would write keeps the samples on the device, takes the fused Adam and "
        "trains one module after another; the recipe, its steps and its pruning are the same. Its "
        "few epochs were timed in a second run of the process and are scaled to one:",
        table("way|modules|epochs timed|ms per module-epoch|times ours", rows),
    ]


def _first_call(result: Result) -> str:
    """How long the first call of a new process takes, where that was timed."""
    first = result.get("first_call")
    if not first:
        return ""
    return (
        f" The first call of a new process, which starts the device and compiles its kernels, "
        f"takes {first['seconds']:.1f} s for {first['modules']} modules."
    )


def speed(load: Load) -> str:
    """The README's lines."""
    cpu, cuda = load("training_cpu"), load("training_cuda")
    modules = load("targets")["training_cuda"]["modules"]
    stack = next(row for row in cuda["stacks"] if row["modules"] == modules)
    seconds, ratios = cpu["ways"]["intarsia"]["seconds_per_module_epoch"], cpu["ratios"]
    first = cuda.get("first_call")
    cold = f" ({first['seconds']:.1f} s as the first call of a new one)" if first else ""
    others = {
        "expert": "the loop an expert would write, with resident tensors, fused Adam and a process "
        "per core",
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
        f"before{cold}.{_readme_cuda(cuda, stack)} On a CPU with {cpu['machine']}, a "
        f"whole pruning run of {cpu['ways']['intarsia']['modules']} modules takes {seconds:.2f} s "
        f"for each module and epoch: {listed(told)}, "
        "timed in the same run. The commands and all numbers are in [GPU](docs/results/"
        "training_cuda.md) and [CPU](docs/results/training_cpu.md)."
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
        f" A module and epoch take 1/{ratio:.1f} of the time of {CUDA_WAYS[name]}, one module "
        "after another on that GPU."
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
        f"One module of {result['parameters']:,} parameters, unpruned after round one and pruned "
        "after the last; each is written, loaded and asked about every test sample.",
        table("module|density|bytes|same logits, bit for bit|samples", rows),
        f"The sparse file is 1/{ratio:.1f} of the dense one; the target of 1/{target} is "
        f"{met(ratio >= target)}. Loaded, both answer "
        f"{'bit for bit as before' if same else 'NOT as before'}.",
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
        f"By `{row['method']}` the peak is {row['peak_MiB'] / 1024:.2f} GiB; the target of "
        f"{target} GiB is {met(row['peak_MiB'] / 1024 < target)}"
        + (f", in {_times(row, other)} times mergekit's CPU time." if other else ".")
        for row in result["rows"]
        if row["way"] == "intarsia"
        for other in [_of_mergekit(result["rows"], row["method"])]
    ]
    compared = [
        f"By `{row['method']}` the largest difference between the two results is "
        f"{row['largest_difference']:.1e}, and {row['fraction_different']:.1e} of the entries "
        "differ by more than 1e-6."
        for row in result["rows"]
        if "largest_difference" in row
    ]
    models = COUNTS.get(result["models"], result["models"])
    return page(
        "Files merged tensor by tensor",
        [result],
        f"A base and {models} models of {result['gigabytes_of_a_model']:.2f} GB each, in float32 "
        f"and in shards: the tensors of a Llama with {result['layers']} layers, filled with random "
        f"numbers. The largest tensor has {result['largest_tensor_MB']:.0f} MB. Each way merges "
        f"them from the same recipe in a process of its own; threads: {result['threads']}; n = 1. "
        "Where other programs run beside it, as they did here, CPU seconds say more than seconds.",
        table("method|way|seconds|CPU seconds|peak GiB|of these not mapped from files, GiB", rows),
        " ".join([*verdicts, *compared]),
        "intarsia computes in float64, and in its time are the digests of what it writes and a "
        "check that everything read is finite; mergekit computes in float32 and maps its files, "
        "whose pages count in its peak while they are in memory, and can be taken from it. "
        f"intarsia maps no files, and ran under a limit of {result['limit_GiB']:g} GiB on the "
        "memory that it may ask for (`RLIMIT_DATA`). Tensors are joined piece by piece; `slerp` "
        "reads them twice and `ties` with a trim three times or four, from the cache of the system "
        "where that has room for the largest tensor of all models, else from the disk. `tsvm` and "
        "`iso_c`, which decompose whole matrices, take several copies of the largest tensor in "
        "float64 and are not measured here.",
    )


def _of_mergekit(rows: Sequence[Mapping[str, Any]], method: str) -> Mapping[str, Any] | None:
    theirs = (r for r in rows if r["method"] == method and r["way"] == "mergekit")
    return next(theirs, None)


def _times(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    return f"{ours['cpu_seconds'] / theirs['cpu_seconds']:.2f}"


INLAY_INTRO = """The inlay of all modules of a bank, compacted, written by `Module.save` and run \
as `sparse` makes it. Beside it: the unpruned network of the modules' own shape (dense), the inlay \
run with dense layers, and the modules joined by `logits`, each with its own network. The ways \
take turns, and times are medians over the repetitions in microseconds a call."""


def inlay(load: Load) -> str:
    result, target = load("inlay"), load("targets")["inlay"]
    parts = [part for row in result["rows"] for part in _inlay_model(row, target)]
    return page("What an inlay costs", [result], INLAY_INTRO, *parts)


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
        "network|bytes on disk|nonzero",
        [[name, f"{own['bytes']:,}", f"{own['nonzero']:,}"] for name, own in files.items()],
    )
    ways = list(row["latency"][0]["median_us"])
    yield table(
        f"threads|batch|repetitions|{'|'.join(ways)}|dense/inlay",
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
        f"The inlay is {smaller:.1f} times smaller on disk; the target of {target['smaller']:g} is "
        f"{met(smaller >= target['smaller'])}. At batch 1 the dense network takes "
        f"{min(single):.2f} to {max(single):.2f} times as long; the target that the inlay is not "
        f"slower is {met(min(single) >= target['batch 1'])}. At batch "
        f"{many[0]['batch']} the inlay takes {large}."
    )


CONV_INLAY_INTRO = (
    "Between hidden channels an inlay is block diagonal. `compose` runs its blocks as convolutions "
    "of their own: in groups where all modules have as many channels, else one after another. "
    "Compared with it in one run: the same blocks always one by one; its state as one network, "
    "zeros included; the modules as networks of their own, whose logits are added; and one network "
    "that may be as large as all of them, `joint`. Weights are as they begin, which the time does "
    "not depend on. A module with channels of several sizes lacks up to three tenths of them, "
    "chosen by chance: there the inlay runs one by one as well, and what the two columns differ "
    "by is noise. Numbers are those that a network holds in memory."
)


def conv_inlay(load: Load) -> str:
    names = ["conv_inlay", "conv_inlay_cuda"]
    results = [load(name) for name in names if (RESULTS / f"{name}.json").exists()]
    parts = [CONV_INLAY_INTRO]
    for result in results:
        where = "a GPU" if "--device cuda" in result["command"] else "a CPU"
        parts.append(f"## On {where}, {result['precision']}")
        parts += [part for row in result["rows"] for part in _conv_inlay_row(row)]
        if "removal" in result:
            parts += _conv_removal(result["removal"])
    return page("Convolutional inlays", results, *parts)


def _conv_inlay_row(row: Result) -> Iterator[str]:
    ways = list(row["numbers"])
    yield (
        f"**{row['modules']} modules of `{row['model']}`, channels {row['channels']}**, beside "
        f"`{row['joint']}`; {row['grouped_layers']} of {row['block_layers']} layers of blocks run "
        f"in groups. Logits differ from the sum of the modules' by at most "
        f"{row['off_the_logit_sum']:.1g} of the largest."
    )
    yield table(
        f"|{'|'.join(ways)}",
        [
            ["numbers", *(f"{row['numbers'][way]:,}" for way in ways)],
            *(
                [
                    f"batch {own['batch']}, ms (over the inlay's)",
                    *(f"{own['median_ms'][w]:.4g} ({own['over_inlay'][w]:.2f})" for w in ways),
                ]
                for own in row["latency"]
            ),
        ],
    )


def _conv_removal(rows: Sequence[Result]) -> Iterator[str]:
    yield "Every module in turn is taken out of an inlay of trained ones:"
    yield table(
        "model|data|rows|epochs|modules|s to train the others|s to remove one|times"
        "|others the same, to the last bit",
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
        "Seconds to train the others are the share of these modules of one call of `train`. More "
        "rows and epochs make that longer, and a removal not."
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
    verdict = f"missed by {', '.join(missed)}" if missed else "met by every switch timed"
    return page(
        "The studio",
        [result],
        f"`intarsia studio` serves {result['modules']} modules ({result['model']}, "
        f"{result['data']}, all test samples) and is asked over HTTP as its page asks it. A switch "
        "is timed from the request to the last byte of the answer, which holds the confusion "
        "matrix, accuracy, entropy, and what every module says of one sample. The browser's "
        "drawing is not in it. Each switch is to a set of modules that was not asked for before.",
        table(
            f"operator|median s|slowest s|under {target:g} s|switched back, median s"
            "|first answer s",
            rows,
        ),
        f"The target of {target:g} s for a switch is {verdict}. An operator's first answer, for "
        "which it may have to look at samples, is listed apart. The page was there after "
        f"{result['seconds_to_start']:.1f} s.",
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
            f"{result['modules']} modules ({result['data']}, {result['operator']}) are served, and "
            f"{sum(row['opened'] for row in waiting)} connections opened that never finish their "
            f"request. Then {crowd['clients']} clients come at the same moment. Each loads the "
            "page, opens its stream of events, asks for what the page shows first, and then for a "
            "switch that nobody asked for before. Seconds are from the connection to the last byte "
            "of the answer, with all other clients waiting, too. Other programs were running: "
            f"{result['load_before']:.0f} processes on average wanted a processor before it began. "
            f"The studio used {result['server_cpu_seconds']:.0f} s of processor time in all.",
            table(
                "clients|answered|page, median s|slowest s|first answer, median s|slowest s"
                "|switch, median s|slowest s",
                times,
            ),
            f"What is closed: a request whose headers are not there after "
            f"{limits['header_seconds']:g} s, or its body after {limits['body_seconds']:g} s and "
            "what its length takes.",
            table("half-open connection sends|closed|median s|slowest s", closed),
            f"Of {streams['opened']} streams of events {streams['open_at_the_end']} were open when "
            f"the last of these was closed. Two visitors loaded different modules under one name: "
            f"{own} got the numbers of their own, and a third {third}.",
        ]
    )


def kills(load: Load) -> str:
    """What kills and flipped bits change, on the CPU and, once it was measured, on a GPU."""
    results = [load("kills")]
    if (RESULTS / "kills_cuda.json").exists():
        results.append(load("kills_cuda"))
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
        "Four modules are trained into a folder, in two chunks, with a checkpoint after every "
        "epoch. The process is killed, at random moments by KILL, TERM and HUP in turn, or by KILL "
        "right before a file operation (a file opened to be written, synced, linked, renamed or "
        "removed, a folder made or removed); the same call resumes the run, until it ends. Then "
        "every file is compared with those of an undisturbed run. All took "
        f"{sum(r['seconds'] for r in results):.0f} s.",
        table(
            "device|engine|model|recipe|locks|kills at random moments|before a file operation"
            "|runs|files|same bytes",
            [_case(result, row) for result, row in cases],
        ),
        f"A run with locks by flock has {operations} file operations; kills came before {hit} of "
        "them, each on at least one of the engines.",
        "## Flipped bits",
        "One bit of one file is flipped, at a random place, in the folder of a run that was killed "
        "or that is finished, and the same call is made again.",
        table("flipped in|what came of it|flips", _summed(flips)),
        f"{target['kills']} kills and {target['flips']} flips were aimed at, none of which may "
        f"change a module silently. There were {done} kills and {flipped} flips: "
        f"{met(held and enough)}.",
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
